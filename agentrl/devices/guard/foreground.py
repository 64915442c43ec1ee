"""Checks which app is in the foreground, on the phone and from here."""

import re
import shlex
import time
from collections.abc import Collection, Iterable

from agentrl.devices.adb.app_commands import package_name
from agentrl.devices.adb.shell_script import Gate, Snippet, quote_command
from agentrl.devices.device import Device
from agentrl.devices.foreground_window import Window
from agentrl.errors import AppLeft

LOOK_AGAIN_S = 0.05
_LINES = "grep -E '^ *m(CurrentFocus|FocusedApp)='"
WINDOW = Snippet(f"dumpsys window displays | {_LINES} || dumpsys window windows | {_LINES} || true")
"""The command whose output `agentrl.devices.foreground_window` parses.

Android 10 and later report the focus under displays, earlier versions under windows. Only the
matching lines are printed: the rest is long and contains window titles that any app can choose.
"""


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
