"""A mini-program of the real WeChat: opened as a person opens it, and found by sight.

No command of the phone opens a mini-program, and WeChat publishes nothing: it is started with its
chats, and the entry of the program is looked for on the screen and touched.
"""

import time

from agentrl.devices import Device
from agentrl.devices.vision import Template, TemplateMatch, find_template
from agentrl.envs.tree_game.app import CHATS_ACTIVITY, PACKAGE
from agentrl.errors import DeviceTimeout
from agentrl.types import Image

_LOOK_AGAIN_S = 0.1
_SURE = 0.9


def open_mini_program(device: Device, entry: Template, *, deadline_s: float = 30.0) -> Image:
    """Start WeChat, and touch the entry of a mini-program among what it shows first.

    Args:
        device: the phone; WeChat is installed and logged in, and the entry is pinned to the top of
            its chats.
        entry: the entry's icon, cut from a screenshot of any phone (`Template.cut`).
        deadline_s: for all of it.

    Returns:
        The screen with the entry, uint8[H, W, 3], as it was when it was touched. The program loads
        after that; wait for its own screen by sight as well.

    Raises:
        DeviceTimeout: WeChat did not come to the front, or shows no such entry.
        DeviceError: the phone failed, or has no WeChat.
    """
    end_s = time.monotonic() + deadline_s
    device.shell("am", "start", "-n", f"{PACKAGE}/{CHATS_ACTIVITY}")
    while device.focus() != PACKAGE:
        _pause(end_s, f"{device.serial}: WeChat did not come to the front; is the phone locked?")
    while True:
        screen = device.screenshot()
        if found := _found(screen, entry):
            left, top, right, bottom = found.box
            device.tap((left + right) / 2, (top + bottom) / 2)
            return screen
        _pause(end_s, f"{device.serial}: WeChat shows no such entry; is it pinned to the top?")


def _found(screen: Image, entry: Template) -> TemplateMatch | None:
    matches = find_template(screen, entry, threshold=_SURE, most=1)
    return matches[0] if matches else None


def _pause(end_s: float, complaint: str) -> None:
    if time.monotonic() >= end_s:
        raise DeviceTimeout(complaint)
    time.sleep(_LOOK_AGAIN_S)
