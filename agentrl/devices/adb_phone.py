"""A phone behind an adb server, with any driver: its connection, screen, input and apps."""

import logging
import re
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from agentrl.actions.screen_actions import Action, Done, Key, Type, Wait
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb.adb_shells import CommandShell, OneShotShell, PersistentShell
from agentrl.devices.adb.adb_socket import AdbRefused
from agentrl.devices.adb.app_commands import (
    package_name,
    parse_counted_state,
    parse_state,
    read_state_command,
    start_command,
)
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.adb.shell_script import Command, Snippet, claim_command, quote_command
from agentrl.devices.capture.phone_screen import PhoneScreen
from agentrl.devices.device import AppState, CommandResult, Deadlines, Look, Window
from agentrl.devices.guard.foreground import (
    WINDOW,
    WINDOW_OF_FIRST_DISPLAY,
    front_check,
    is_allowed,
    parse_front_package,
    parse_window,
)
from agentrl.devices.input.input_commands import Keyboard, Touch, input_command
from agentrl.devices.readiness import why_dark
from agentrl.devices.screen_regions import ScreenRegion
from agentrl.errors import AppNotInFront, DeviceError, DeviceOffline, DeviceTimeout
from agentrl.extension_points import CAPTURE
from agentrl.types import Image

log = logging.getLogger(__name__)

INPUTS = ("input", "shell")
"""How our own commands are run: in a new shell per call, or in a persistent shell."""
WAKE: tuple[Command, ...] = (("input", "keyevent", "KEYCODE_WAKEUP"), ("wm", "dismiss-keyguard"))
_ENDPOINT = re.compile(
    r"tcp:\d{1,5}|local(abstract|reserved|filesystem)?:[\w./@-]{1,100}", re.ASCII
)
_LEAST_S = 1.0
"""Minimum time for connecting, however long the server took to start."""
_POLL_S = 0.02


class AdbPhone:
    """One phone behind an adb server; implements `agentrl.devices.device.Device`.

    Callers' commands (`shell`, `batch`) run in a new shell each; our own commands, which leave the
    shell's state unchanged, may run in a persistent one.
    """

    def __init__(
        self,
        server: AdbServer,
        serial: str,
        deadlines: Deadlines | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """Connect the phone, starting the adb server if it is not running."""
        self.serial: str = serial
        self.deadlines: Deadlines = deadlines or Deadlines()
        self.transport = DeviceTransport(server, serial)
        self.one_shot_shell = OneShotShell(self.transport)
        self.persistent_shell = PersistentShell(self.transport, self.one_shot_shell)
        self.internal_shell: CommandShell = self.persistent_shell
        """The shell, persistent or not, that runs our own commands."""
        self.screen = PhoneScreen(self.transport, self._run_one)
        self.wakes = False
        """Whether a dark screen is turned on; see `devices.wake`."""
        self._keyboard = Keyboard(serial, self.run_internal)
        self._server = server
        self._on_close = on_close
        self._serialno = ""
        self.reconnect()

    def use(self, *, capture: str = "raw", input: str = "shell") -> None:
        """Set the capture (`devices.capture`, but not `auto`) and the input method (`INPUTS`)."""
        self.screen.use(CAPTURE.resolve(capture)(self.transport))
        self.internal_shell = self.persistent_shell if input == "shell" else self.one_shot_shell

    # --- the connection -----------------------------------------------------------------------

    def reconnect(self) -> None:
        """Connect the phone, starting the adb server if it is not running."""
        # Starting the server may use up the time, but the phone needs some time to connect.
        end_s = time.monotonic() + self.deadlines.connect_s
        self._server.ensure(self.deadlines.connect_s)
        self._server.connect(self.serial, max(_LEAST_S, end_s - time.monotonic()))
        self.wake_if_asked()

    def claim(self, token: int) -> None:
        """Make the phone refuse commands sent under any other lease."""
        # Without a token the command succeeds whatever lease the phone still has.
        self.transport.token = None
        self._run_one(self._deadline(), claim_command(token))
        self.wake_if_asked()

    def set_lease(self, token: int | None) -> None:
        """Send all further commands under this lease; None sends them without a lease check."""
        self.transport.token = token

    def wake_if_asked(self) -> None:
        """If `wakes` is set, turn the screen on and dismiss a lock screen that needs no PIN."""
        if self.wakes:
            self.batch(*WAKE)

    def serialno(self) -> str:
        """Return the phone's own serial number, the same over USB and Wi-Fi."""
        if not self._serialno:
            results = self.batch(("getprop", "ro.serialno"), ("getprop", "ro.boot.serialno"))
            names = [result.output.strip() for result in results]
            self._serialno = next((name for name in names if name), self.serial)
        return self._serialno

    def reverse(self, remote: str, local: str) -> None:
        """Forward connections to `remote` on the phone to `local` on the adb server's machine."""
        self._request_tunnel(f"reverse:forward:{_endpoint(remote)};{_endpoint(local)}")

    def reverse_remove(self, remote: str) -> None:
        """Remove a tunnel set up by `reverse`; does nothing if it does not exist."""
        try:
            self._request_tunnel(f"reverse:killforward:{_endpoint(remote)}")
        except DeviceOffline:
            raise
        except DeviceError as error:
            if not isinstance(error.__cause__, AdbRefused):
                raise

    def connect(self, remote: str) -> socket.socket:
        """Connect to an endpoint on the phone; the caller closes the socket."""
        with self.transport.opened(_endpoint(remote), self._deadline()) as link:
            return link.detach()

    def _request_tunnel(self, service: str) -> None:
        with self.transport.opened(service, self._deadline()) as link:
            # adbd replies twice: first that it accepts the request, then that it is done.
            link.check_accepted()

    def reboot(self) -> None:
        """Reboot the phone; call `reconnect` when it is back."""
        self.transport.check_online()
        try:
            with self.transport.opened("reboot:", self._deadline()) as link:
                link.receive()
        except DeviceOffline:  # the phone went down before it could answer
            pass

    def close(self) -> None:
        """Restore the input method, close the connections, and call `on_close`."""
        try:
            self._keyboard.restore(self._deadline())
        except DeviceError as error:
            log.warning(
                "%s: could not switch back from ADBKeyboard to the phone's input method: %s",
                self.serial,
                error,
            )
        self.screen.close()
        self.persistent_shell.close()
        on_close, self._on_close = self._on_close, lambda: None
        on_close()

    # --- commands -----------------------------------------------------------------------------

    def shell(self, *arguments: str) -> str:
        """Run one command, each argument quoted for the phone's shell; return its output."""
        (result,) = self.batch(arguments)
        return self.checked(arguments, result)

    def batch(self, *commands: Sequence[str]) -> list[CommandResult]:
        """Run several commands in order, in one round trip."""
        return self.one_shot_shell.run(commands, self._deadline())

    def run_internal(
        self, commands: Sequence[Command], deadline: Deadline | None = None
    ) -> list[CommandResult]:
        """Run our own commands, which must not change the shell's state."""
        return self.internal_shell.run(commands, deadline or self._deadline())

    def checked(self, command: Command, result: CommandResult) -> str:
        """Return the output of a command; raise DeviceError if it failed."""
        if result.code:
            raise DeviceError(
                f"{self.serial}: {quote_command(command)[:200]} failed with exit code "
                f"{result.code}: {result.output.strip()[:500]}"
            )
        return result.output

    def _run_one(self, deadline: Deadline, command: Command) -> str:
        (result,) = self.run_internal([command], deadline)
        return self.checked(command, result)

    def _deadline(self, more_s: float = 0.0) -> Deadline:
        return Deadline(self.deadlines.command_s + more_s)

    # --- the screen ---------------------------------------------------------------------------

    def size(self) -> tuple[int, int]:
        """Return the width and height of the screen in pixels."""
        return self.screen.size(self._deadline())

    def screenshot(self) -> Image:
        """Capture the screen as uint8[H, W, 3], read-only."""
        deadline = Deadline(self.deadlines.frame_s)
        return self.screen.capture_then(self.internal_shell, (), deadline)[0]

    def screenshot_and_front(self) -> tuple[Image, str | None]:
        """Capture the screen, and return the package in front right after it."""
        deadline, commands = Deadline(self.deadlines.frame_s), [self._window_command]
        picture, results = self.screen.capture_then(self.internal_shell, commands, deadline)
        return picture, parse_front_package(results[0].output) if results else None

    def app_area(self) -> ScreenRegion | None:
        """Return None: apps use the whole screen."""
        return None

    # --- apps ---------------------------------------------------------------------------------

    def launch(self, package: str, activity: str, extras: Mapping[str, str]) -> None:
        """(Re)start an app and wait until it has the focus."""
        deadline = Deadline(self.deadlines.launch_s)
        start = start_command(package, activity, extras)
        started, window = self.one_shot_shell.run((start, self._window_command), deadline)
        # `am start` may print an error and still exit with 0.
        if started.code or "Error" in started.output:
            raise DeviceError(f"{self.serial}: cannot start {package}: {started.output.strip()}")
        front = parse_front_package(window.output)
        while front != package:
            try:
                time.sleep(min(_POLL_S, deadline.left_s()))
                front = parse_front_package(self._run_one(deadline, self._window_command))
            except (TimeoutError, DeviceTimeout):
                why = why_dark(self) or "is a dialog open?"
                raise DeviceTimeout(
                    f"{self.serial}: {package} was started but {front} is in front after "
                    f"{deadline.seconds:g} s; {why}"
                ) from None

    def stop(self, package: str) -> None:
        """Stop an app."""
        # Only for the current user, because a work profile may have the same app.
        stop = ("am", "force-stop", "--user", "current", package_name(package))
        self._run_one(self._deadline(), stop)

    def focus(self) -> str | None:
        """Return the package in front, or None if the phone does not report it."""
        return parse_front_package(self._run_one(self._deadline(), self._window_command))

    def window(self) -> Window:
        """Return the window that receives touches."""
        return parse_window(self._run_one(self._deadline(), self._window_command))

    def app_state(self, package: str) -> AppState:
        """Return the state that an app publishes."""
        (result,) = self.run_internal([read_state_command(package_name(package))])
        try:
            return parse_state(package, result)
        except DeviceError as error:
            raise DeviceError(f"{self.serial}: {error}") from error

    def look(self, package: str) -> Look:
        """Return the state that an app publishes now, and the package in front."""
        state, window = self.run_internal(
            (read_state_command(package_name(package)), self._window_command)
        )
        return self._seen(state, window)

    @property
    def _window_command(self) -> Snippet:
        return WINDOW_OF_FIRST_DISPLAY if self.transport.display else WINDOW

    def _seen(self, state: CommandResult, window: CommandResult) -> Look:
        front = parse_front_package(self.checked(self._window_command, window))
        return Look(state=parse_counted_state(state), front=front)

    # --- actions ------------------------------------------------------------------------------

    def perform(self, action: Action, duration_s: float | None = None) -> None:
        """Perform an action, without waiting for its effect."""
        if isinstance(action, Wait):
            time.sleep(action.seconds)
        elif not isinstance(action, Done):
            deadline = self._deadline(duration_s or 0.0)
            commands = self._commands(action, deadline, duration_s)
            results = self.run_internal(commands, deadline)
            for command, result in zip(commands, results, strict=True):
                self.checked(command, result)

    def send_action(
        self, action: Action, package: str, only_in: Collection[str] | None = None
    ) -> tuple[Look, Look]:
        """Perform an action; return the looks right before and right after it."""
        if isinstance(action, Wait | Done):  # nothing for the phone to run
            before = self.look(package)
            if only_in is not None and not is_allowed(before.front, only_in):
                raise self._not_in_front(only_in)
            self.perform(action)
            return before, self.look(package)
        look, deadline = read_state_command(package_name(package)), self._deadline()
        # Check on the phone right before the touch, as a window can come up between two calls.
        gates = [] if only_in is None else [front_check(only_in, self._window_command)]
        # One script, so that the looks are as close to the touch as possible.
        commands = self._commands(action, deadline)
        script = (look, *gates, *commands, look, self._window_command)
        (first, *rest), picture = self.screen.run_then_capture(
            self.internal_shell, script, deadline
        )
        if only_in is not None and rest.pop(0).code:
            raise self._not_in_front(only_in)
        *done, last, window = rest
        for command, result in zip(commands, done, strict=True):
            self.checked(command, result)
        after = self._seen(last, window)
        return Look(state=parse_counted_state(first)), replace(after, screen=picture)

    def _commands(
        self, action: Touch | Key | Type, deadline: Deadline, duration_s: float | None = None
    ) -> list[Command]:
        if isinstance(action, Type):
            return self._keyboard.commands(action.text, deadline)
        return [input_command(action, self.screen.size(deadline), duration_s)]

    def _not_in_front(self, allowed: Iterable[str]) -> AppNotInFront:
        return AppNotInFront(f"{self.serial}: {' or '.join(sorted(allowed))} is not in front")


def _endpoint(text: str) -> str:
    """Check a tunnel endpoint and return it."""
    if not _ENDPOINT.fullmatch(text):
        raise ValueError(
            f"{text!r} is not a tunnel endpoint such as tcp:8080 or localabstract:name"
        )
    return text
