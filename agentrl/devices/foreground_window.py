"""What is in front on a phone, as its shell tells."""

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "call", "permission", "anr", "crash", "foreign_app", "system_window", "nothing_in_front"
]
"""What a window is to an app that it stands in front of; void episodes are counted by these."""

_TROUBLE = r"Application (?:Error|Not Responding):"
_FOCUS = re.compile(
    rf"^ *mCurrentFocus=Window\{{\S+ (?!(?:u\d+ )?{_TROUBLE})"
    r"(?:u\d+ )?([^\s/}]+)",
    re.MULTILINE,
)
"""The dialog about a crashed or hung app is no package: nobody went there."""
_TITLE = re.compile(r"^ *mCurrentFocus=Window\{\S+ (?:u\d+ )?([^}\n]+)\}", re.MULTILINE)
_APP = re.compile(r"^ *mFocusedApp=.*?\s([A-Za-z][\w.]*)/", re.MULTILINE)
_CALLS = ("com.android.server.telecom", "com.android.phone")
_PERMISSIONS = ("permissioncontroller", "GrantPermissions")


@dataclass(slots=True, kw_only=True, frozen=True)
class Window:
    """The window that gets the touches."""

    kind: Kind
    package: str
    """Whose it is; the title of a window of the system, which names none."""


def package_in(window: str) -> str | None:
    """The package in front, out of the output of `front.WINDOW`; None if it names none."""
    found = _FOCUS.search(window)
    return None if found is None else found[1]


def window_in(output: str) -> Window:
    """The window in front, out of the output of `front.WINDOW`.

    A small window of an app itself, such as a menu, belongs to the app that has the focus.
    """
    found = _TITLE.search(output)
    if found is None:
        return Window(kind="nothing_in_front", package="")
    title = found[1].strip()
    package, slash, activity = title.partition("/")
    if re.match(_TROUBLE, title):
        kind: Kind = "crash" if title.startswith("Application Error") else "anr"
        return Window(kind=kind, package=title.partition(":")[2].strip())
    if title.startswith("PopupWindow:") and (owner := _APP.search(output)):
        return Window(kind="foreign_app", package=owner[1])
    if not slash:
        return Window(kind="system_window", package=title)
    if package in _CALLS or "incallui" in title.lower():
        return Window(kind="call", package=package)
    if any(word in package or word in activity for word in _PERMISSIONS):
        return Window(kind="permission", package=package)
    return Window(kind="foreign_app", package=package)
