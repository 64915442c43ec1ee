"""A device that forwards its calls to another device."""

import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from agentrl.actions.screen_actions import Action
from agentrl.devices.device import CommandResult, Deadlines, Device, Look, Window
from agentrl.devices.screen_regions import ScreenRegion
from agentrl.types import Image

T = TypeVar("T")


class ForwardingDevice:
    """Forwards every call to another `Device`; subclasses override some methods."""

    def __init__(self, device: Device) -> None:
        self.serial: str = device.serial
        self.deadlines: Deadlines = device.deadlines
        self._device = device

    def _call(self, act: Callable[[], T]) -> T:
        """Make one call; all methods except `close` go through here."""
        return act()

    def size(self) -> tuple[int, int]:
        return self._call(self._device.size)

    def screenshot(self) -> Image:
        return self._call(self._device.screenshot)

    def screenshot_and_front(self) -> tuple[Image, str | None]:
        return self._call(self._device.screenshot_and_front)

    def perform(self, action: Action, duration_s: float | None = None) -> None:
        self._call(lambda: self._device.perform(action, duration_s))

    def launch(self, package: str, activity: str, extras: Mapping[str, str]) -> None:
        self._call(lambda: self._device.launch(package, activity, extras))

    def stop(self, package: str) -> None:
        self._call(lambda: self._device.stop(package))

    def focus(self) -> str | None:
        return self._call(self._device.focus)

    def window(self) -> Window:
        return self._call(self._device.window)

    def app_area(self) -> ScreenRegion | None:
        return self._call(self._device.app_area)

    def app_state(self, package: str) -> Mapping[str, Any]:
        return self._call(lambda: self._device.app_state(package))

    def look(self, package: str) -> Look:
        return self._call(lambda: self._device.look(package))

    def send_action(
        self, action: Action, package: str, only_in: Collection[str] | None = None
    ) -> tuple[Look, Look]:
        return self._call(lambda: self._device.send_action(action, package, only_in))

    def shell(self, *arguments: str) -> str:
        return self._call(lambda: self._device.shell(*arguments))

    def batch(self, *commands: Sequence[str]) -> list[CommandResult]:
        return self._call(lambda: self._device.batch(*commands))

    def reverse(self, remote: str, local: str) -> None:
        self._call(lambda: self._device.reverse(remote, local))

    def reverse_remove(self, remote: str) -> None:
        self._call(lambda: self._device.reverse_remove(remote))

    def connect(self, remote: str) -> socket.socket:
        return self._call(lambda: self._device.connect(remote))

    def serialno(self) -> str:
        return self._call(self._device.serialno)

    def reboot(self) -> None:
        self._call(self._device.reboot)

    def reconnect(self) -> None:
        self._call(self._device.reconnect)

    def close(self) -> None:
        self._device.close()
