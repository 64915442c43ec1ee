"""Open a mini-program in the real WeChat by finding its entry on the screen.

No shell command opens a mini-program, and WeChat publishes no state, so we start WeChat with its
chats, locate the program's entry on the screen and tap it.
"""

import time

from agentrl.devices import Device, Tap
from agentrl.devices.vision import Template, TemplateMatch, find_template
from agentrl.envs.wechat.tree_game.app import CHATS_ACTIVITY, PACKAGE
from agentrl.errors import DeviceTimeout
from agentrl.types import Image

_LOOK_AGAIN_S = 0.1
_SURE = 0.9


def open_mini_program(device: Device, entry: Template, *, deadline_s: float = 30.0) -> Image:
    """Start WeChat and tap the entry of a mini-program on its first screen.

    Args:
        device: the phone; WeChat must be installed and logged in, with the entry pinned to the top
            of its chats.
        entry: the entry's icon, cropped from a screenshot of any phone (`Template.crop`).
        deadline_s: deadline for the whole call.

    Returns:
        The screen with the entry, uint8[H, W, 3], just before the tap. The program loads after
        that, so wait until its first screen is visible.

    Raises:
        DeviceTimeout: WeChat did not come to the front, or does not show the entry.
        DeviceError: the phone failed, or WeChat is not installed.
    """
    end_s = time.monotonic() + deadline_s
    device.shell("am", "start", "-n", f"{PACKAGE}/{CHATS_ACTIVITY}")
    while device.focus() != PACKAGE:
        _pause(end_s, f"{device.serial}: WeChat did not come to the front; is the phone locked?")
    while True:
        screen = device.screenshot()
        if match := _find_entry(screen, entry):
            left, top, right, bottom = match.box
            device.perform(Tap((left + right) / 2, (top + bottom) / 2))
            return screen
        _pause(end_s, f"{device.serial}: WeChat does not show the entry; is it pinned to the top?")


def _find_entry(screen: Image, entry: Template) -> TemplateMatch | None:
    matches = find_template(screen, entry, threshold=_SURE, most=1)
    return matches[0] if matches else None


def _pause(end_s: float, message: str) -> None:
    if time.monotonic() >= end_s:
        raise DeviceTimeout(message)
    time.sleep(_LOOK_AGAIN_S)
