"""A phone as the framework sees it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentrl.types import Image


@dataclass(slots=True, kw_only=True, frozen=True)
class Deadlines:
    """How long a phone may take, in seconds."""

    connect_s: float = 10.0
    command_s: float = 5.0
    frame_s: float = 5.0
    settle_s: float = 3.0
    launch_s: float = 15.0
    start_s: float = 30.0
    """For all virtual phones to come up."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Result:
    """What a command on the phone gave."""

    output: str
    code: int


class Device(Protocol):
    """One connected phone. Every call ends within its deadline or raises a typed error.

    Errors of every call: DeviceOffline, DeviceTimeout, DeviceError; `screenshot` also raises
    CaptureError, and never returns a picture that the phone did not show.
    """

    serial: str
    deadlines: Deadlines

    def size(self) -> tuple[int, int]:
        """Width and height of the screen in pixels."""

    def screenshot(self) -> Image:
        """What the screen shows now, uint8[H, W, 3]; the caller owns the array."""

    def tap(self, x: float, y: float) -> None:
        """Tap at (x, y), each in [0, 1] of the screen."""

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_s: float = 0.3) -> None:
        """Swipe from (x1, y1) to (x2, y2), in [0, 1]."""

    def key(self, name: str) -> None:
        """Press a key, such as `BACK` or `HOME`."""

    def text(self, text: str) -> None:
        """Type text into the focused field."""

    def launch(self, package: str, activity: str, extras: Mapping[str, str]) -> None:
        """Start an app afresh and wait until it has the focus."""

    def stop(self, package: str) -> None:
        """Stop an app."""

    def focus(self) -> str | None:
        """The package in front, or None if the phone names none."""

    def app_state(self, package: str) -> Mapping[str, Any]:
        """The state that the app of that package publishes.

        Raises:
            DeviceError: it publishes none, or what it wrote is no JSON object.
        """

    def shell(self, *arguments: str) -> str:
        """Run one command, each argument quoted for the phone's shell; its output.

        Raises:
            DeviceError: its exit code is not 0.
        """

    def batch(self, *commands: Sequence[str]) -> list[Result]:
        """Run several commands one after the other in one round trip, as `shell` does.

        Returns:
            One result per command; an exit code other than 0 is no error here.
        """

    def reconnect(self) -> None:
        """Make the phone ready again where its connection, or the adb server, was lost.

        Does nothing to a phone that is ready, and never ends the adb server.

        Raises:
            ConfigError: its address is no longer a private one.
        """

    def close(self) -> None:
        """Give the connections back; the phone itself stays as it is."""
