"""The `Device` protocol: the framework's interface to a phone."""

import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from agentrl.actions.screen_actions import Action
from agentrl.devices.screen_regions import ScreenRegion
from agentrl.types import Image

AppState = Mapping[str, Any]
"""State published by an app; `touches` counts the touches and keys it has handled."""
WindowKind = Literal[
    "call", "permission", "install", "update", "anr", "crash", "foreign_app", "system_window",
    "nothing_in_front",
]  # fmt: skip
"""Kinds of windows that cover an app; discarded episodes are counted per kind."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Deadlines:
    """Deadlines for calls to a phone, in seconds."""

    connect_s: float = 10.0
    command_s: float = 5.0
    frame_s: float = 5.0
    settle_s: float = 3.0
    launch_s: float = 15.0
    start_s: float = 30.0
    """Time for all virtual phones to start."""
    boot_s: float = 120.0
    """Time for Android to finish booting when a phone is opened."""


@dataclass(slots=True, kw_only=True, frozen=True)
class CommandResult:
    """Output and exit code of a command on the phone."""

    output: str
    code: int


@dataclass(slots=True, kw_only=True, frozen=True)
class Look:
    """State of a phone at one moment."""

    state: AppState | None = None
    """State published by the app; None if it publishes none."""
    front: str | None = None
    """The package in front; None if the phone does not report it or was not asked."""
    screen: Image | None = field(default=None, compare=False)
    """The screen right after the state was read, uint8[H, W, 3], read-only; None if capturing it
    needs a separate call."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Window:
    """The window that receives touches."""

    kind: WindowKind
    package: str
    """Package that owns the window; for a system window, its title."""
    activity: str = field(default="", compare=False)
    """The owner's activity, if known."""


class Device(Protocol):
    """One connected phone. Every call ends within its deadline or raises a typed error.

    Every call may raise DeviceOffline, DeviceTimeout or DeviceError; `screenshot` also raises
    CaptureError, and never returns a picture that the phone did not show. ValueError means an
    invalid argument: a position outside the screen, or an invalid key name or tunnel endpoint.
    """

    serial: str
    deadlines: Deadlines

    def size(self) -> tuple[int, int]:
        """Return the width and height of the screen in pixels."""

    def screenshot(self) -> Image:
        """Capture the screen as uint8[H, W, 3], read-only.

        The picture is never older than the call: everything on the screen at that time is in it.
        If the screen has not changed, the same array may be returned again.
        """

    def screenshot_and_front(self) -> tuple[Image, str | None]:
        """Capture the screen, and return the package in front right after it.

        The package is None if the phone does not report it, or if reading it needs a separate call
        (`focus`).
        """

    def perform(self, action: Action, duration_s: float | None = None) -> None:
        """Perform an action, without waiting for its effect.

        Args:
            action: the action, with positions in [0, 1] of the screen.
            duration_s: how long a touch stays on the screen; None uses the action's default.

        Raises:
            DeviceError: the phone has no input method that can type the text.
        """

    def launch(self, package: str, activity: str, extras: Mapping[str, str]) -> None:
        """(Re)start an app and wait until it has the focus."""

    def stop(self, package: str) -> None:
        """Stop an app."""

    def focus(self) -> str | None:
        """Return the package in front, or None if the phone does not report it."""

    def window(self) -> Window:
        """Return the window that receives touches; for a page that shows an app, the app."""

    def app_area(self) -> ScreenRegion | None:
        """Return the part of the screen where a page shows its app (`agentrl.phone_page`).

        None if apps use the whole screen below the status bar.
        """

    def app_state(self, package: str) -> AppState:
        """Return the state that an app publishes.

        Raises:
            DeviceError: the app publishes no state, or something other than a JSON object.
        """

    def look(self, package: str) -> Look:
        """Return the state that an app publishes now, and the package in front."""

    def send_action(
        self, action: Action, package: str, only_in: Collection[str] | None = None
    ) -> tuple[Look, Look]:
        """Perform an action; return the looks right before and right after it.

        The first look may lack `front`. The action may take effect only after the second look.

        Args:
            action: the action to perform.
            package: the app whose published state is read.
            only_in: packages, or `package/activity-prefix`; the action is performed only if one of
                them is in front. None always performs it.

        Raises:
            AppNotInFront: another package was in front; nothing was done.
        """

    def shell(self, *arguments: str) -> str:
        """Run one command, each argument quoted for the phone's shell; return its output.

        Raises:
            DeviceError: the command's exit code is not 0.
        """

    def batch(self, *commands: Sequence[str]) -> list[CommandResult]:
        """Run several commands in order, in one round trip; quoting as in `shell`.

        Returns:
            One result per command; a nonzero exit code does not raise.
        """

    def reverse(self, remote: str, local: str) -> None:
        """Forward connections to `remote` on the phone to `local` on the adb server's machine.

        Args:
            remote: endpoint on the phone, such as `tcp:8080`.
            local: endpoint on the adb server's machine, such as `tcp:9000`.
        """

    def reverse_remove(self, remote: str) -> None:
        """Remove a tunnel set up by `reverse`; does nothing if it does not exist."""

    def connect(self, remote: str) -> socket.socket:
        """Connect to an endpoint on the phone; the caller closes the socket, which has no timeout.

        Unlike commands, the connection outlives the lease under which it was made.

        Args:
            remote: endpoint on the phone, such as `localabstract:chrome_devtools_remote`.

        Raises:
            DeviceError: nothing listens there.
        """

    def serialno(self) -> str:
        """Return the phone's own serial number, the same over USB and Wi-Fi."""

    def reboot(self) -> None:
        """Reboot the phone; call `reconnect` when it is back."""

    def reconnect(self) -> None:
        """Make the phone ready again after its connection, or the adb server, was lost.

        Does nothing to a phone that is ready, and never kills the adb server.

        Raises:
            ConfigError: the phone's address is now public.
        """

    def close(self) -> None:
        """Close the connections, leaving the phone itself as it is."""
