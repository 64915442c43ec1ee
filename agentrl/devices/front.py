"""What is in front on a phone, where only some apps may be."""

import time
from collections.abc import Collection

from agentrl.devices.protocol import Device
from agentrl.devices.window import Window
from agentrl.errors import AppLeft

LOOK_AGAIN_S = 0.05


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
