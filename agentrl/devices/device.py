"""A phone as the framework sees it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentrl.actions.screen_actions import DRAG_S, LONG_PRESS_S, SWIPE_S, Action
from agentrl.devices.foreground_window import Window
from agentrl.devices.screen_regions import Region
from agentrl.types import Image

State = Mapping[str, Any]
"""What an app publishes; `touches` counts the touches and keys that it has handled."""


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


@dataclass(slots=True, kw_only=True, frozen=True)
class Look:
    """What is known of a phone at one moment without looking at its screen."""

    state: State | None = None
    """What the app that was asked about publishes; None where it publishes nothing."""
    front: str | None = None
    """The package in front; None where the phone names none, or was not asked."""


class Device(Protocol):
    """One connected phone. Every call ends within its deadline or raises a typed error.

    Errors of every call: DeviceOffline, DeviceTimeout, DeviceError; `screenshot` also raises
    CaptureError, and never returns a picture that the phone did not show. ValueError is for what
    no phone is asked: a position beside the screen, no name of a key, no end of a tunnel.
    """

    serial: str
    deadlines: Deadlines

    def size(self) -> tuple[int, int]:
        """Width and height of the screen in pixels."""

    def screenshot(self) -> Image:
        """What the screen shows, uint8[H, W, 3]; the caller owns the array.

        It is never older than the call: all that was on the screen by then is in it.
        """

    def tap(self, x: float, y: float) -> None:
        """Tap at (x, y), each in [0, 1] of the screen."""

    def long_press(self, x: float, y: float, duration_s: float = LONG_PRESS_S) -> None:
        """Hold a finger at (x, y), in [0, 1]."""

    def swipe(
        self, x1: float, y1: float, x2: float, y2: float, duration_s: float = SWIPE_S
    ) -> None:
        """Swipe from (x1, y1) to (x2, y2), in [0, 1]."""

    def drag(self, x1: float, y1: float, x2: float, y2: float, duration_s: float = DRAG_S) -> None:
        """Hold what is at (x1, y1) and drop it at (x2, y2), in [0, 1]."""

    def key(self, name: str) -> None:
        """Press a key, such as `BACK` or `HOME`."""

    def text(self, text: str) -> None:
        """Type text into the focused field, whatever its characters.

        Raises:
            DeviceError: the phone has no input method that types them.
        """

    def launch(self, package: str, activity: str, extras: Mapping[str, str]) -> None:
        """Start an app afresh and wait until it has the focus."""

    def stop(self, package: str) -> None:
        """Stop an app."""

    def focus(self) -> str | None:
        """The package in front, or None if the phone names none."""

    def window(self) -> Window:
        """The window that gets the touches; of a page that shows an app, that app."""

    def app_area(self) -> Region | None:
        """Where the app lies that a page shows (`agentrl.phone_page`).

        None where apps have the screen themselves, below its status bar.
        """

    def app_state(self, package: str) -> State:
        """The state that the app of that package publishes.

        Raises:
            DeviceError: it publishes none, or what it wrote is no JSON object.
        """

    def look(self, package: str) -> Look:
        """What that app publishes now, and what is in front."""

    def act(
        self, action: Action, package: str, only_in: Collection[str] | None = None
    ) -> tuple[Look, Look]:
        """Perform an action; what was known right before it and right after it.

        The first may leave out what is in front. What comes of the action may come later.

        Args:
            action: what to do.
            package: of the app whose published state is looked at.
            only_in: packages; the action is only done if one of them is in front. None: always.

        Raises:
            NotInFront: another one was in front, and nothing was done.
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

    def reverse(self, remote: str, local: str) -> None:
        """Have connections to `remote` on the phone arrive at `local` on the server's machine.

        Args:
            remote: such as `tcp:8080`.
            local: such as `tcp:9000`.
        """

    def reverse_remove(self, remote: str) -> None:
        """End what `reverse` began; nothing happens where there is none."""

    def serialno(self) -> str:
        """Who the phone says it is, by whatever way it is connected."""

    def reboot(self) -> None:
        """Have the phone start again; `reconnect` when it is back."""

    def reconnect(self) -> None:
        """Make the phone ready again where its connection, or the adb server, was lost.

        Does nothing to a phone that is ready, and never ends the adb server.

        Raises:
            ConfigError: its address is no longer a private one.
        """

    def close(self) -> None:
        """Give the connections back; the phone itself stays as it is."""
