"""The foreground window: checked on the phone itself, and parsed from dumpsys."""

import re
import shlex
import time
from collections.abc import Collection, Iterable
from typing import Self

from agentrl.config.device_settings import check_allowed
from agentrl.devices.adb.shell_script import Gate, Snippet, quote_command
from agentrl.devices.device import Device, Window, WindowKind
from agentrl.errors import AppLeft

LOOK_AGAIN_S = 0.05
_LINES = "grep -E '^ *m(CurrentFocus|FocusedApp)='"
_OTHER_DISPLAYS = "/^ *Display: mDisplayId=[1-9]/,/^ *Display: mDisplayId=0/d"
"""Removes what `dumpsys window displays` prints about displays other than the first."""


def _window_command(select: str) -> Snippet:
    displays = f"dumpsys window displays{select} | {_LINES}"
    return Snippet(f"{displays} || dumpsys window windows | {_LINES} || true")


WINDOW = _window_command("")
"""Command whose output `parse_front_package` and `parse_window` parse.

Android 10 and later report the focus under displays, earlier versions under windows. Only the
matching lines are printed: the rest is long and contains window titles that any app can choose.
"""
WINDOW_OF_FIRST_DISPLAY = _window_command(f" | sed {shlex.quote(_OTHER_DISPLAYS)}")
"""Equivalent of `WINDOW` for phones with several displays, each with a focused window."""
_FAILURE = r"Application (?:Error|Not Responding):"
_FOCUS = re.compile(
    rf"^ *mCurrentFocus=Window\{{\S+ (?!(?:u\d+ )?{_FAILURE})"
    r"(?:u\d+ )?([^\s/}]+)(?:/([^\s}]+))?",
    re.MULTILINE,
)
"""Excludes the dialog about a crashed or hung app, which is not a package."""
_TITLE = re.compile(r"^ *mCurrentFocus=Window\{\S+ (?:u\d+ )?([^}\n]+)\}", re.MULTILINE)
_APP = re.compile(r"^ *mFocusedApp=.*?\s([A-Za-z][\w.]*)/([^\s}]+)", re.MULTILINE)
_CALLS = ("com.android.server.telecom", "com.android.phone")
_INSTALLERS = re.compile(r"packageinstaller|AdbInstall", re.IGNORECASE)
"""Windows that confirm an installation; Xiaomi's appears at each `adb install`."""
_UPDATERS = re.compile(
    r"\.update\.SystemUpdate|^com\.android\.updater/|^com\.wssyncmldm/|^com\.bbk\.updater/|"
    r"^com\.huawei\.android\.hwouc/|^com\.(oppo|oplus|coloros|motorola\.ccc)\.ota/"
)
"""Windows that offer a system update."""
_PERMISSIONS = ("permissioncontroller", "GrantPermissions")


class FrontApp(str):
    """The package in front, as a string, and its activity."""

    __slots__ = ("activity",)
    activity: str

    def __new__(cls, package: str, activity: str = "") -> Self:
        """Combine a package and its activity: `.Main`, a full name, or "" if unknown."""
        front = super().__new__(cls, package)
        front.activity = activity
        return front


def front_check(allowed: Iterable[str], window: Snippet = WINDOW) -> Gate:
    """Return a command that fails unless an allowed entry is in front (see `is_allowed`)."""
    names = "|".join(sorted(_titles(check_allowed(entry)) for entry in allowed))
    pattern = rf"^ *mCurrentFocus=Window\{{[^ ]+ (u[0-9]+ )?({names})"
    # Match only the first line, because later matches can only be window titles with line breaks.
    front = f"{quote_command(window)} | grep -m 1 mCurrentFocus="
    return Gate(f"{front} | grep -qE {shlex.quote(pattern)}")


def _titles(entry: str) -> str:
    """Return a regular expression for the start of the titles of an entry's windows."""
    package, _, prefix = entry.partition("/")
    prefix = _full_activity(package, prefix)
    if not prefix:
        return f"{re.escape(package)}[ /}}]"
    inside = prefix.removeprefix(package)
    if inside.startswith("."):
        return f"{re.escape(package)}/({re.escape(package)})?{re.escape(inside)}"
    return f"{re.escape(package)}/{re.escape(prefix)}"


def parse_front_package(window: str) -> FrontApp | None:
    """Parse the package in front from the output of `WINDOW`; None if there is none."""
    found = _FOCUS.search(window)
    return None if found is None else FrontApp(found[1], found[2] or "")


def parse_window(output: str) -> Window:
    """Parse the window in front from the output of `WINDOW`.

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
    # A popup's title does not name its app, but a popup does not change the focused app.
    if title.startswith("PopupWindow:") and (owner := _APP.search(output)):
        return Window(kind="foreign_app", package=owner[1], activity=owner[2])
    if not slash:
        return Window(kind="system_window", package=title)
    if package in _CALLS or "incallui" in title.lower():
        return Window(kind="call", package=package)
    if any(word in package or word in activity for word in _PERMISSIONS):
        return Window(kind="permission", package=package)
    if _INSTALLERS.search(title):
        return Window(kind="install", package=package, activity=activity)
    if _UPDATERS.search(title):
        return Window(kind="update", package=package, activity=activity)
    return Window(kind="foreign_app", package=package, activity=activity)


def is_allowed(front: str | None, allowed: Iterable[str]) -> bool:
    """Return whether `front` is an allowed package or matches a `package/activity-prefix`."""
    activity = front.activity if isinstance(front, FrontApp) else ""
    for entry in allowed:
        package, _, prefix = entry.partition("/")
        prefix = _full_activity(package, prefix)
        if front == package and _full_activity(package, activity).startswith(prefix):
            return True
    return False


def _full_activity(package: str, activity: str) -> str:
    """Return the full name of an activity, adding the package to a name such as `.Main`."""
    return package + activity if activity.startswith(".") else activity


def foreign_window(device: Device, allowed: Collection[str]) -> Window | None:
    """Return the window in front if it is not allowed, else None.

    No window is in front during a transition, or while the page that shows the app is disconnected,
    so this waits for one up to the `settle_s` deadline.
    """
    end_s = time.monotonic() + device.deadlines.settle_s
    while True:
        front = device.focus()
        if is_allowed(front, allowed):
            return None
        window = device.window()
        # These dialogs hide the package in front, so `focus` returns None.
        if window.kind in ("anr", "crash"):
            return window
        # The window may have changed since `focus`, so check the window itself.
        if front is not None and window.kind != "nothing_in_front":
            app = FrontApp(window.package, window.activity)
            return None if is_allowed(app, allowed) else window
        if time.monotonic() >= end_s:
            raise AppLeft(
                "nothing_in_front",
                f"{device.serial}: no window is in front; is the screen off? "
                "(devices.wake=true turns it on)",
            )
        time.sleep(LOOK_AGAIN_S)
