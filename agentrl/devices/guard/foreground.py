"""Which window is in the foreground: checked on the phone itself, and parsed from dumpsys."""

import re
import shlex
import time
from collections.abc import Collection, Iterable

from agentrl.devices.adb.app_commands import package_name
from agentrl.devices.adb.shell_script import Gate, Snippet, quote_command
from agentrl.devices.device import Device, Window, WindowKind
from agentrl.errors import AppLeft

LOOK_AGAIN_S = 0.05
_LINES = "grep -E '^ *m(CurrentFocus|FocusedApp)='"
WINDOW = Snippet(f"dumpsys window displays | {_LINES} || dumpsys window windows | {_LINES} || true")
"""The command whose output `parse_front_package` and `parse_window` parse.

Android 10 and later report the focus under displays, earlier versions under windows. Only the
matching lines are printed: the rest is long and contains window titles that any app can choose.
"""
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


def front_check(packages: Iterable[str]) -> Gate:
    """A command that fails unless one of these packages is in front (by the rule of `package_in`).

    Raises:
        DeviceError: a package name is invalid.
    """
    names = "|".join(sorted(re.escape(package_name(package)) for package in packages))
    pattern = rf"^ *mCurrentFocus=Window\{{[^ ]+ (u[0-9]+ )?({names})[ /}}]"
    # Only the first line: later ones can only be window titles with line breaks.
    front = f"{quote_command(WINDOW)} | grep -m 1 mCurrentFocus="
    return Gate(f"{front} | grep -qE {shlex.quote(pattern)}")


def parse_front_package(window: str) -> str | None:
    """The package in front, from the output of `WINDOW`; None if it names none."""
    found = _FOCUS.search(window)
    return None if found is None else found[1]


def parse_window(output: str) -> Window:
    """The window in front, from the output of `WINDOW`.

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


def foreign_window(device: Device, allowed: Collection[str]) -> Window | None:
    """The window in front if it belongs to none of the allowed packages, else None.

    During a transition between windows, or while the page that shows the app is disconnected,
    nothing is in front; this waits for it up to the `settle_s` deadline.

    Args:
        device: the phone.
        allowed: package names.

    Raises:
        AppLeft: nothing came to the front in time.
        DeviceError: the phone failed.
    """
    end_s = time.monotonic() + device.deadlines.settle_s
    while True:
        front = device.focus()
        if front in allowed:
            return None
        window = device.window()
        if window.kind in ("anr", "crash"):
            return window
        if front is not None and window.kind != "nothing_in_front":
            return None if window.package in allowed else window
        if time.monotonic() >= end_s:
            raise AppLeft(
                f"nothing_in_front: {device.serial}: nothing is in front; is the screen off?"
            )
        time.sleep(LOOK_AGAIN_S)
