"""Parses which window is in the foreground from the output of dumpsys."""

import re
from dataclasses import dataclass
from typing import Literal

WindowKind = Literal[
    "call", "permission", "anr", "crash", "foreign_app", "system_window", "nothing_in_front"
]
"""What kind of window covers an app; discarded episodes are counted by it."""

_FAILURE = r"Application (?:Error|Not Responding):"
_FOCUS = re.compile(
    rf"^ *mCurrentFocus=Window\{{\S+ (?!(?:u\d+ )?{_FAILURE})"
    r"(?:u\d+ )?([^\s/}]+)",
    re.MULTILINE,
)
"""Excludes the dialog about a crashed or hung app, which is not a package."""
_TITLE = re.compile(r"^ *mCurrentFocus=Window\{\S+ (?:u\d+ )?([^}\n]+)\}", re.MULTILINE)
_APP = re.compile(r"^ *mFocusedApp=.*?\s([A-Za-z][\w.]*)/", re.MULTILINE)
_CALLS = ("com.android.server.telecom", "com.android.phone")
_PERMISSIONS = ("permissioncontroller", "GrantPermissions")


@dataclass(slots=True, kw_only=True, frozen=True)
class Window:
    """The window that receives touches."""

    kind: WindowKind
    package: str
    """The owner; for a system window, its title."""


def parse_front_package(window: str) -> str | None:
    """The package in front, from the output of `front.WINDOW`; None if it names none."""
    found = _FOCUS.search(window)
    return None if found is None else found[1]


def parse_window(output: str) -> Window:
    """The window in front, from the output of `front.WINDOW`.

    A popup of an app, such as a menu, counts as the app that has the focus.
    """
    found = _TITLE.search(output)
    if found is None:
        return Window(kind="nothing_in_front", package="")
    title = found[1].strip()
    package, slash, activity = title.partition("/")
    if re.match(_FAILURE, title):
        kind: WindowKind = "crash" if title.startswith("Application Error") else "anr"
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
