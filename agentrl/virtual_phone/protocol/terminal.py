"""The terminal of `adb shell`: echo, editing of the line, control characters, prompts."""

import asyncio
from collections.abc import Coroutine

from agentrl.virtual_phone.shell.interpreter import ShellInterpreter
from agentrl.virtual_phone.shell.redirects import Input, Read, Terminal, Write
from agentrl.virtual_phone.shell.shell_parser import parse
from agentrl.virtual_phone.shell.shell_state import ShellExit
from agentrl.virtual_phone.shell.syntax_tree import ShellSyntaxError
from agentrl.virtual_phone.system.event import Event

_INTERRUPT, _END, _KILL_LINE, _KILL_WORD = 0x03, 0x04, 0x15, 0x17
_ERASE = frozenset((0x08, 0x7F))
INTERRUPTED = 130
"""Exit code of what Ctrl-C has ended."""
_MAX_LINE_LENGTH = 1 << 20
_OFTEN_PARSED = 1 << 14
"""Up to this length, unfinished commands are parsed after each line."""


class TerminalDevice:
    """A line discipline as in Linux: what is typed comes back, and is read line by line."""

    def __init__(self, keyboard: Read, screen: Write, size: Terminal) -> None:
        """Connect.

        Args:
            keyboard: what the client sends.
            screen: sends to the client.
            size: changed when the client's window does.
        """
        self.size = size
        self._keyboard = keyboard
        self._screen = screen
        self._line = bytearray()
        self._lines: list[bytes] = []
        """Finished lines; an empty one is the end of the input."""
        self._changed = Event()
        self._foreground: asyncio.Task[object] | None = None
        self._is_interrupted = self._is_closed = False

    def write(self, data: bytes | memoryview) -> None:
        """Show output, with carriage returns."""
        self._screen(bytes(data).replace(b"\n", b"\r\n"))

    async def read(self) -> bytes:
        """The next line; empty at Ctrl-D. Ctrl-C gives a line of the character alone."""
        while not self._lines:
            await self._changed.wait()
        line = self._lines[0]
        if line or not self._is_closed:
            del self._lines[0]
        return line

    async def listen(self) -> None:
        """Handle what is typed, until the client closes the input."""
        while data := await self._keyboard():
            for character in data:
                self._type(character)
            self._changed.notify()
        self._is_closed = True
        self._lines += [bytes(self._line), b""] if self._line else [b""]
        self._changed.notify()

    async def run(self, work: Coroutine[None, None, object]) -> bool:
        """Run in the foreground; returns whether Ctrl-C interrupted it."""
        self._is_interrupted = False
        self._foreground = task = asyncio.create_task(work)
        try:
            await asyncio.wait([task])
        finally:
            self._foreground = None
            task.cancel()
        if self._is_interrupted and task.cancelled():
            return True
        task.result()
        return False

    def _type(self, character: int) -> None:
        if character == _INTERRUPT:
            self._line.clear()
            self._screen(b"^C\r\n")
            self._lines.clear()
            if self._foreground is not None:
                self._is_interrupted = True
                self._foreground.cancel()
            else:
                self._lines.append(bytes([_INTERRUPT]))
        elif character == _END:
            self._lines.append(bytes(self._line))
            self._line.clear()
        elif character in _ERASE:
            self._erase(1)
        elif character == _KILL_LINE:
            self._erase(len(self._line))
        elif character == _KILL_WORD:
            *_, word = self._line.rsplit(maxsplit=1) or [bytearray()]
            self._erase(len(self._line) - len(self._line.rstrip()) + len(word))
        elif character in b"\r\n":
            self._screen(b"\r\n")
            self._lines.append(bytes(self._line) + b"\n")
            self._line.clear()
        elif len(self._line) < _MAX_LINE_LENGTH:
            self._line.append(character)
            shown = bytes([character])
            self._screen(b"^" + bytes([character + 64]) if character < 32 else shown)

    def _erase(self, num_bytes: int) -> None:
        """Erase whole characters of UTF-8."""
        for _ in range(num_bytes):
            while self._line and self._line[-1] & 0xC0 == 0x80:
                del self._line[-1]
            if self._line:
                del self._line[-1]
                self._screen(b"\b \b")


async def converse(shell: ShellInterpreter, device: TerminalDevice | None) -> None:
    """Run commands as they are read; with a terminal, prompt for them."""
    text, last_parsed = "", 0
    while True:
        if device is not None:
            shell.io.out(_prompt(shell, text))
        line = await _read_line(shell.io.read)
        if line == bytes([_INTERRUPT]) and device is not None:
            text, shell.code = "", INTERRUPTED
            continue
        text += line.decode("utf-8", "surrogateescape")
        is_joined = line.endswith(b"\\\n") and not line.endswith(b"\\\\\n")
        is_long = len(text) > _OFTEN_PARSED and len(text) < last_parsed * 9 // 8
        if line and (is_joined or is_long):
            continue
        try:
            script = parse(text)
        except (ShellSyntaxError, RecursionError) as error:
            if line and getattr(error, "is_incomplete", False) and len(text) < _MAX_LINE_LENGTH:
                last_parsed = len(text)
                continue
            shell.complain(str(error) or "nested too deeply")
            shell.code, script = 1, ()
        text, last_parsed = "", 0
        try:
            if device is None:
                await shell.run_typed(script)
            elif await device.run(shell.run_typed(script)):
                shell.code = INTERRUPTED
        except ShellExit as end:
            shell.code = end.code
            return
        await shell.io.drain()
        if not line:
            shell.io.out(b"\n" if device is not None else b"")
            return


def _prompt(shell: ShellInterpreter, text: str) -> bytes:
    """The prompt of Android's shell, with the exit code of a failed command; `> ` to go on."""
    if text:
        return b"> "
    code = f"{shell.code}|" if shell.code else ""
    name = shell.phone.properties.get("ro.product.device", "virtual")
    shown = shell.environment.get("PS1", f"{code}{name}:{shell.environment['PWD']} $ ")
    return shown.encode("utf-8", "surrogateescape")


async def _read_line(source: Input) -> bytes:
    """One line, or what is left at the end of the input; the rest is for the next reader."""
    line = b""
    while chunk := await source():
        line += chunk
        end = line.find(b"\n") + 1
        if end or len(line) > _MAX_LINE_LENGTH or line == bytes([_INTERRUPT]):
            source.put_back(line[end or len(line) :])
            return line[: end or len(line)]
    return line
