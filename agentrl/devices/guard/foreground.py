"""What is in front on a phone, where only some apps may be."""

import re
import shlex
import time
from collections.abc import Collection, Iterable

from agentrl.devices.adb.app_launch import package_name
from agentrl.devices.adb.shell_script import Gate, Snippet, spelled
from agentrl.devices.device import Device
from agentrl.devices.foreground_window import Window
from agentrl.errors import AppLeft

LOOK_AGAIN_S = 0.05
_LINES = "grep -E '^ *m(CurrentFocus|FocusedApp)='"
WINDOW = Snippet(f"dumpsys window displays | {_LINES} || dumpsys window windows | {_LINES} || true")
"""The command whose output the functions here read.

Android tells it among its displays from version 10 on, and among its windows before. Of the rest
nothing is asked for: it is long, and holds titles that anybody can choose.
"""


def in_front_command(packages: Iterable[str]) -> Gate:
    """The command that fails where none of these packages is in front, as `package_in` tells.

    Raises:
        DeviceError: one is no name of a package.
    """
    names = "|".join(sorted(re.escape(package_name(package)) for package in packages))
    pattern = rf"^ *mCurrentFocus=Window\{{[^ ]+ (u[0-9]+ )?({names})[ /}}]"
    # The first line alone: further ones can only be titles that hold line breaks.
    front = f"{spelled(WINDOW)} | grep -m 1 mCurrentFocus="
    return Gate(f"{front} | grep -qE {shlex.quote(pattern)}")


def outside(device: Device, allowed: Collection[str]) -> Window | None:
    """The window in front, if it is none of the allowed.

    Between two windows nothing is in front, nor while the page that shows the app is not
    connected: that is waited for, as long as a screen may take to rest.

    Args:
        device: the phone.
        allowed: packages.

    Raises:
        AppLeft: nothing was in front in time.
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
