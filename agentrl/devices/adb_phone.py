"""A phone behind an adb server, with any driver."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from agentrl.actions.screen_actions import Action, Done, Key, Type, Wait
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb.adb_socket import Deadline
from agentrl.devices.adb.app_commands import (
    package_name,
    parse_counted_state,
    parse_state,
    read_state_command,
    start_command,
)
from agentrl.devices.adb.shell_script import BytesResult, Command, Snippet, text_results
from agentrl.devices.capture import Capture
from agentrl.devices.capture.capture_method import DISPLAY, ScreenSize
from agentrl.devices.capture.screencap import RawCapture
from agentrl.devices.connected_phone import ConnectedPhone
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
from agentrl.errors import AppNotInFront, CaptureError, DeviceError, DeviceTimeout
from agentrl.extension_points import CAPTURE
from agentrl.types import Image

log = logging.getLogger(__name__)

INPUTS = ("input", "shell")
"""How our own commands are run: in a new shell per call, or in a persistent one."""
_POLL_S = 0.02


class AdbPhone(ConnectedPhone):
    """One phone behind an adb server; implements `agentrl.devices.device.Device`."""

    def __init__(
        self,
        server: AdbServer,
        serial: str,
        deadlines: Deadlines | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """Connect the phone, starting the adb server if none runs.

        Args:
            server: an adb server, running or not; its driver speaks to the phone.
            serial: as `adb devices` names it, or `host:port`.
            deadlines: of every call.
            on_close: called when the device is closed.
        """
        super().__init__(server, serial, deadlines, on_close)
        self.capture: Capture = RawCapture(self.transport)
        self._size = ScreenSize(
            serial,
            lambda deadline: self._own(deadline, "wm", "size"),
            lambda deadline: self._own(deadline, *DISPLAY),
        )
        self._keyboard = Keyboard(serial, self.run_internal)
        self._lock = threading.Lock()
        self.reconnect()

    def use(self, *, capture: str = "raw", input: str = "shell") -> None:
        """Set the capture and the input method.

        Args:
            capture: as `devices.capture`, but not `auto`.
            input: one of `INPUTS`.
        """
        chosen: Capture = CAPTURE.resolve(capture)(self.transport)
        with self._lock:
            self.capture.close()
            self.capture = chosen
        self.internal_shell = self.persistent_shell if input == "shell" else self.one_shot_shell

    def size(self) -> tuple[int, int]:
        """Width and height of the screen in pixels."""
        return self._size.now(self._deadline())

    def screenshot(self) -> Image:
        """Capture the screen as uint8[H, W, 3], read-only."""
        return self._capture_then()[0]

    def screenshot_and_front(self) -> tuple[Image, str | None]:
        """Capture the screen, and return the package in front right after it."""
        picture, results = self._capture_then(self._window_command)
        return picture, parse_front_package(results[0].output) if results else None

    def _capture_then(self, *commands: Command) -> tuple[Image, list[CommandResult]]:
        """A capture, and the results of further commands if it is a command as well."""
        deadline = Deadline(self.deadlines.frame_s)
        with self._lock:
            try:
                # One call for both, where captures are small enough for the persistent shell.
                picture, rest = None, list[BytesResult]()
                if (found := self._outputs_with_capture((), commands, deadline)) is not None:
                    (printed, _), *rest = found
                    picture = self.capture.parse(printed)
                if picture is None:
                    picture, rest = self.capture.frame(deadline), []
            except CaptureError:  # of a phone that has gone, say that instead
                self.transport.check_online()
                raise
            self._size.check(picture, deadline)
        picture.flags.writeable = False
        return picture, text_results(rest)

    def _run_then_capture(
        self, commands: Sequence[Command], deadline: Deadline
    ) -> tuple[list[CommandResult], Image | None]:
        """Run our own commands, then capture if that is a command as well and succeeds."""
        picture = None
        with self._lock:
            found = self._outputs_with_capture(commands, (), deadline)
            if found is not None and len(found) > len(commands):
                with contextlib.suppress(CaptureError):  # the next capture says what is wrong
                    picture = self.capture.parse(found.pop()[0])
                    if picture is not None:
                        self._size.check(picture, deadline)
        if found is None:
            return self.run_internal(commands, deadline), None
        return text_results(found), picture

    def _outputs_with_capture(
        self, before: Sequence[Command], after: Sequence[Command], deadline: Deadline
    ) -> list[BytesResult] | None:
        """Run commands and a capture in the persistent shell; None if it cannot capture."""
        command = self.capture.command
        if command is None or self.internal_shell is not self.persistent_shell:
            return None
        return self.persistent_shell.outputs((*before, command, *after), deadline)

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

    def launch(self, package: str, activity: str, extras: Mapping[str, str]) -> None:
        """(Re)start an app and wait until it has the focus."""
        deadline = Deadline(self.deadlines.launch_s)
        start = start_command(package, activity, extras)
        started, window = self.one_shot_shell.run((start, self._window_command), deadline)
        if started.code or "Error" in started.output:
            raise DeviceError(f"{self.serial}: cannot start {package}: {started.output.strip()}")
        front = parse_front_package(window.output)
        while front != package:
            try:
                time.sleep(min(_POLL_S, deadline.left_s()))
                front = parse_front_package(self._window(deadline))
            except (TimeoutError, DeviceTimeout):
                why = why_dark(self) or "is a dialog open?"
                raise DeviceTimeout(
                    f"{self.serial}: {package} was started but {front} is in front after "
                    f"{deadline.seconds:g} s; {why}"
                ) from None

    def stop(self, package: str) -> None:
        """Stop an app."""
        # Not of another user: a work profile may have the same app.
        stop = ("am", "force-stop", "--user", "current", package_name(package))
        self._own(self._deadline(), *stop)

    def focus(self) -> str | None:
        """The package in front, or None if the phone reports none."""
        return parse_front_package(self._window(self._deadline()))

    def window(self) -> Window:
        """The window that receives touches."""
        return parse_window(self._window(self._deadline()))

    def app_area(self) -> ScreenRegion | None:
        """Return None: apps have the whole screen."""
        return None

    def app_state(self, package: str) -> AppState:
        """The state that an app publishes."""
        (result,) = self.run_internal([read_state_command(package_name(package))])
        try:
            return parse_state(package, result)
        except DeviceError as error:
            raise DeviceError(f"{self.serial}: {error}") from error

    def look(self, package: str) -> Look:
        """The state that an app publishes now, and the package in front."""
        state, window = self.run_internal(
            (read_state_command(package_name(package)), self._window_command)
        )
        return self._seen(state, window)

    def send_action(
        self, action: Action, package: str, only_in: Collection[str] | None = None
    ) -> tuple[Look, Look]:
        """Perform an action; returns the looks right before and right after it."""
        if isinstance(action, Wait | Done):  # nothing for the phone to run
            before = self.look(package)
            if only_in is not None and not is_allowed(before.front, only_in):
                raise self._not_in_front(only_in)
            self.perform(action)
            return before, self.look(package)
        look, deadline = read_state_command(package_name(package)), self._deadline()
        # Checked on the phone, right before the touch: between two calls anything can come up.
        gates = [] if only_in is None else [front_check(only_in, self._window_command)]
        # In one script, so that the looks are as close to the touch as they can be.
        commands = self._commands(action, deadline)
        script = (look, *gates, *commands, look, self._window_command)
        (first, *rest), screen = self._run_then_capture(script, deadline)
        if only_in is not None and rest.pop(0).code:
            raise self._not_in_front(only_in)
        *done, last, window = rest
        for command, result in zip(commands, done, strict=True):
            self.checked(command, result)
        after = self._seen(last, window)
        return Look(state=parse_counted_state(first)), replace(after, screen=screen)

    def close(self) -> None:
        """Restore the input method, close the connections and what was started with the phone."""
        try:
            self._keyboard.restore(self._deadline())
        except DeviceError as error:
            log.warning("%s: the input method is still ADBKeyboard: %s", self.serial, error)
        self.capture.close()
        super().close()

    def _deadline(self, more_s: float = 0.0) -> Deadline:
        return Deadline(self.deadlines.command_s + more_s)

    def _commands(
        self, action: Touch | Key | Type, deadline: Deadline, duration_s: float | None = None
    ) -> list[Command]:
        if isinstance(action, Type):
            return self._keyboard.commands(action.text, deadline)
        return [input_command(action, self._size.now(deadline), duration_s)]

    def _own(self, deadline: Deadline, *command: str) -> str:
        (result,) = self.run_internal([command], deadline)
        return self.checked(command, result)

    def _window(self, deadline: Deadline) -> str:
        (result,) = self.run_internal([self._window_command], deadline)
        return self.checked(self._window_command, result)

    @property
    def _window_command(self) -> Snippet:
        return WINDOW_OF_FIRST_DISPLAY if self.transport.display else WINDOW

    def _not_in_front(self, allowed: Iterable[str]) -> AppNotInFront:
        return AppNotInFront(f"{self.serial}: {' or '.join(sorted(allowed))} is not in front")

    def _seen(self, state: CommandResult, window: CommandResult) -> Look:
        front = parse_front_package(self.checked(self._window_command, window))
        return Look(state=parse_counted_state(state), front=front)
