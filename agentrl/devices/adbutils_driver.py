"""A phone over adbutils' connections, with hot paths of our own."""

import json
import re
import secrets
import shlex
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from adbutils.errors import AdbError

from agentrl.devices.actions import key_code, pixel
from agentrl.devices.adb import AdbServer
from agentrl.devices.capture import FrameReader
from agentrl.devices.link import Deadline, Link, is_timeout, told
from agentrl.devices.protocol import Deadlines, Result
from agentrl.devices.window import WINDOW, package_in
from agentrl.errors import CaptureError, DeviceError, DeviceOffline, DeviceTimeout
from agentrl.phone.app import state_path
from agentrl.types import Image

_V2 = struct.Struct("<BI")
_STDOUT, _STDERR, _EXIT = 1, 2, 3
_SIZE = re.compile(r"(Physical|Override) size: (\d+)x(\d+)")
_CODE = re.compile(r"(\d+)\r?\n")
_POLL_S = 0.02


class AdbutilsDevice:
    """One phone behind an adb server; implements `agentrl.devices.protocol.Device`."""

    def __init__(
        self,
        server: AdbServer,
        serial: str,
        deadlines: Deadlines | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """Connect the phone, starting the adb server if none runs.

        Args:
            server: an adb server, running or not.
            serial: as `adb devices` names it, or `host:port`.
            deadlines: of every call.
            on_close: called when the device is closed.

        Raises:
            ConfigError: a public address, or no adb program.
            DeviceOffline: the phone is not there.
            DeviceTimeout: it did not become ready in time.
        """
        self.serial = serial
        self.deadlines = deadlines or Deadlines()
        self._server = server
        self._on_close = on_close
        self._frames = FrameReader()
        self._lock = threading.Lock()
        self._size: tuple[int, int] | None = None
        self.reconnect()

    def size(self) -> tuple[int, int]:
        """Width and height of the screen in pixels."""
        if self._size is None:
            found = {m[1]: (int(m[2]), int(m[3])) for m in _SIZE.finditer(self.shell("wm", "size"))}
            if not found:
                raise DeviceError(f"{self.serial}: wm size names no size")
            self._size = found.get("Override", found.get("Physical"))
        assert self._size is not None
        return self._size

    def screenshot(self) -> Image:
        """What the screen shows now, uint8[H, W, 3]; the caller owns the array."""
        with self._lock, self._opened("exec:screencap", self.deadlines.frame_s) as link:
            try:
                frame = self._frames.read(link, self.serial)
            except CaptureError:
                self._check_online()
                raise
        self._size = (frame.shape[1], frame.shape[0])
        return frame

    def tap(self, x: float, y: float) -> None:
        """Tap at (x, y), each in [0, 1] of the screen."""
        self.shell("input", "tap", *self._pixels(x, y))

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_s: float = 0.3) -> None:
        """Swipe from (x1, y1) to (x2, y2), in [0, 1]."""
        ends = (*self._pixels(x1, y1), *self._pixels(x2, y2))
        self.shell("input", "swipe", *ends, str(round(duration_s * 1000)))

    def key(self, name: str) -> None:
        """Press a key, such as `BACK` or `HOME`."""
        self.shell("input", "keyevent", key_code(name))

    def text(self, text: str) -> None:
        """Type printable ASCII into the focused field."""
        if not (text.isascii() and text.isprintable()):
            raise DeviceError(f"{self.serial}: `input text` types printable ASCII, not {text!r}")
        # %s means a space to `input`; a literal %s only arrives in two pieces.
        pieces = text.replace("%s", "%\0s").split("\0")
        typed = [("input", "text", piece.replace(" ", "%s")) for piece in pieces if piece]
        for result in self.batch(*typed):
            self._check(("input", "text"), result)

    def launch(self, package: str, activity: str, extras: Mapping[str, str]) -> None:
        """Start an app afresh and wait until it has the focus."""
        deadline = Deadline(self.deadlines.launch_s)
        told_extras = [word for key, value in extras.items() for word in ("--es", key, value)]
        start = ("am", "start", "-S", "-W", "-n", f"{package}/{activity}", *told_extras)
        started, window = self._batch((start, WINDOW), self.deadlines.launch_s)
        if started.code or "Error" in started.output:
            raise DeviceError(f"{self.serial}: {package} does not start: {started.output.strip()}")
        front = package_in(window.output)
        while front != package:
            try:
                time.sleep(min(_POLL_S, deadline.left_s()))
            except TimeoutError:
                raise DeviceTimeout(
                    f"{self.serial}: {package} was started but {front} is in front after "
                    f"{deadline.seconds:g} s; is a dialog open?"
                ) from None
            front = self.focus()

    def stop(self, package: str) -> None:
        """Stop an app."""
        self.shell("am", "force-stop", package)

    def focus(self) -> str | None:
        """The package in front, or None if the phone names none."""
        return package_in(self.shell(*WINDOW))

    def app_state(self, package: str) -> Mapping[str, Any]:
        """The state that the app of that package publishes."""
        (result,) = self.batch(("cat", state_path(package)))
        if result.code:
            raise DeviceError(
                f"{self.serial}: {package} publishes no state: {result.output.strip()}"
            )
        try:
            state = json.loads(result.output)
        except ValueError as error:
            raise DeviceError(f"{self.serial}: state of {package} is no JSON: {error}") from error
        if not isinstance(state, dict):
            raise DeviceError(f"{self.serial}: state of {package} is no JSON object")
        return state

    def shell(self, *arguments: str) -> str:
        """Run one command, each argument quoted for the phone's shell; its output."""
        result = self._run(shlex.join(arguments), self.deadlines.command_s)
        self._check(arguments, result)
        return result.output

    def batch(self, *commands: Sequence[str]) -> list[Result]:
        """Run several commands one after the other in one round trip."""
        return self._batch(commands, self.deadlines.command_s)

    def reconnect(self) -> None:
        """Connect the phone, starting the adb server if none runs."""
        self._server.ensure(self.deadlines.connect_s)
        self._server.connect(self.serial, self.deadlines.connect_s)

    def close(self) -> None:
        """Every call has its own connection: only what came with the phone is ended."""
        on_close, self._on_close = self._on_close, lambda: None
        on_close()

    def _batch(self, commands: Sequence[Sequence[str]], deadline_s: float) -> list[Result]:
        # Unguessable, so that no output can pass for the end of a command.
        mark = f"=={secrets.token_hex(8)}=="
        script = "; ".join(f"{shlex.join(c)} 2>&1; echo {mark}$?" for c in commands)
        output = self._run(script, deadline_s).output if commands else ""
        results = _results(output, mark)
        if len(results) != len(commands):
            raise DeviceError(
                f"{self.serial}: the shell ended after {len(results)} of {len(commands)} commands: "
                f"{output[-200:]!r}"
            )
        return results

    def _run(self, script: str, deadline_s: float) -> Result:
        """Run a script that is quoted already; the errors it wrote follow its output."""
        if "\0" in script:
            raise DeviceError(f"{self.serial}: a NUL cannot be sent to a shell")
        out, err = bytearray(), bytearray()
        with self._opened(f"shell,v2,raw:{script}", deadline_s) as link:
            for id, data in _packets(link):
                if id == _EXIT:
                    text = (out + err).decode("utf-8", "replace")
                    return Result(output=text, code=data[0])
                if id in (_STDOUT, _STDERR):
                    (out if id == _STDOUT else err).extend(data)
        self._check_online()
        raise DeviceError(f"{self.serial}: the shell ended without an exit code: {script[:200]}")

    def _check(self, arguments: Sequence[str], result: Result) -> None:
        if result.code:
            raise DeviceError(
                f"{self.serial}: {shlex.join(arguments)[:200]} failed with code {result.code}: "
                f"{result.output.strip()[:500]}"
            )

    @contextmanager
    def _opened(self, service: str, deadline_s: float) -> Iterator[Link]:
        """A service of the phone, with one deadline for all that is done with it."""
        what = f"{self.serial}: {service.partition(':')[2][:100]}"
        try:
            deadline = Deadline(deadline_s)
            with Link(self._server.host, self._server.port, deadline) as link:
                link.request(f"host:transport:{self.serial}")
                link.request(service)
                yield link
        except (OSError, EOFError, struct.error, AdbError) as error:
            if not is_timeout(error):
                self._check_online()
            raise told(error, what, deadline_s) from error

    def _check_online(self) -> None:
        """Say so if the reason of a failure is that the phone is gone.

        Raises:
            DeviceOffline: it is.
        """
        devices = self._server.devices(self.deadlines.command_s)
        state = devices.pop(self.serial, "not connected")
        if state != "device":
            ready = sum(other == "device" for other in devices.values())
            raise DeviceOffline(
                f"{self.serial} is {state}; {ready} others are ready. "
                f"Reconnect it: adb disconnect {self.serial}; adb connect {self.serial}"
            )

    def _pixels(self, x: float, y: float) -> tuple[str, str]:
        width, height = self.size()
        return pixel(x, width), pixel(y, height)


def _results(output: str, mark: str) -> list[Result]:
    """The output of every command that ended, each followed by the mark and its exit code."""
    text, *rest = output.split(mark)
    results = []
    for piece in rest:
        code = _CODE.match(piece)
        if code is None:
            break
        results.append(Result(output=text, code=int(code[1])))
        text = piece[code.end() :]
    return results


def _packets(link: Link) -> Iterator[tuple[int, bytes]]:
    """What shell v2 sends, by id; read as it comes, because a read costs more than a copy."""
    buffer = bytearray()
    while chunk := link.receive():
        buffer += chunk
        while len(buffer) >= _V2.size:
            id, length = _V2.unpack_from(buffer)
            end = _V2.size + length
            if len(buffer) < end:
                break
            yield id, bytes(buffer[_V2.size : end])
            del buffer[:end]
