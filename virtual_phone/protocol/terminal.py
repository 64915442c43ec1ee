"""The terminal of `adb shell`: echo, line editing, control characters, prompts."""

import asyncio
import re
from collections.abc import Coroutine

from virtual_phone.shell.command_streams import Read, Terminal, Write
from virtual_phone.shell.interpreter import ShellInterpreter
from virtual_phone.shell.shell_parser import parse
from virtual_phone.shell.shell_state import ShellExit
from virtual_phone.shell.syntax_tree import ShellSyntaxError
from virtual_phone.system.asyncio_wakeup import Wakeup

_INTERRUPT, _END, _KILL_LINE = 0x03, 0x04, 0x15
_ERASE = frozenset((0x08, 0x7F))
INTERRUPTED = 130
"""Exit code of a command interrupted by Ctrl-C."""
_ESCAPE = 0x1B
_KEYS = {
    start + letter: name
    for start in (b"\x1b[", b"\x1bO")
    for letter, name in ((b"A", "up"), (b"B", "down"), (b"C", "right"), (b"D", "left"))
}
"""Bytes that terminals send for the arrow keys."""
_MAX_HISTORY = 500
_MAX_LINE_LENGTH = 1 << 20
_LINE = re.compile(rb"\n|\A\x03\Z")
"""End of a typed line, or just Ctrl-C."""
_OFTEN_PARSED = 1 << 14
"""Maximum length at which an unfinished command is parsed after each line."""


class TerminalDevice:
    """A line discipline as in Linux: echoes typed characters and delivers whole lines."""

    def __init__(self, keyboard: Read, screen: Write, size: Terminal) -> None:
        self.size = size
        self._keyboard = keyboard
        self._screen = screen
        self._line = bytearray()
        self._num_after = 0
        """Number of bytes after the cursor."""
        self._sequence = b""
        """Incomplete escape sequence of a key."""
        self._history: list[bytes] = []
        self._history_at = 0
        self._lines: list[bytes] = []
        """Finished lines; an empty line marks the end of the input."""
        self._changed = Wakeup()
        self._foreground: asyncio.Task[object] | None = None
        self._is_interrupted = self._is_closed = False

    def write(self, data: bytes | memoryview) -> None:
        """Show output, adding carriage returns."""
        self._screen(bytes(data).replace(b"\n", b"\r\n"))

    async def read(self) -> bytes:
        """Return the next line: empty for Ctrl-D, just the character for Ctrl-C."""
        while not self._lines:
            await self._changed.wait()
        line = self._lines[0]
        if line or not self._is_closed:
            del self._lines[0]
        return line

    async def listen(self) -> None:
        """Handle typed characters until the client closes the input."""
        while data := await self._keyboard():
            for character in data:
                self._type(character)
            self._changed.notify()
        self._is_closed = True
        self._lines += [bytes(self._line), b""] if self._line else [b""]
        self._changed.notify()

    async def run(self, work: Coroutine[None, None, object]) -> bool:
        """Run `work` in the foreground; return whether Ctrl-C interrupted it."""
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
        # A program reading input gets keys unchanged; line editing is for the shell only.
        is_edited = self._foreground is None
        if self._sequence or (is_edited and character == _ESCAPE):
            self._sequence += bytes([character])
            if _is_complete(self._sequence):
                sequence, self._sequence = self._sequence, b""
                self._edit(_KEYS.get(sequence, ""))
        elif character == _INTERRUPT:
            self._clear()
            self._screen(b"^C\r\n")
            self._lines.clear()
            if self._foreground is not None:
                self._is_interrupted = True
                self._foreground.cancel()
            else:
                self._lines.append(bytes([_INTERRUPT]))
        elif character == _END:
            self._lines.append(bytes(self._line))
            self._clear()
        elif character in _ERASE:
            self._erase(1)
        elif character == _KILL_LINE:
            self._erase(len(self._line))
        elif character in b"\r\n":
            self._screen(b"\r\n")
            self._lines.append(bytes(self._line) + b"\n")
            if is_edited and self._line.strip():
                self._history = [*self._history, bytes(self._line)][-_MAX_HISTORY:]
            self._clear()
        elif len(self._line) < _MAX_LINE_LENGTH:
            self._line.insert(self._cursor, character)
            shown = bytes([character])
            self._screen(b"^" + bytes([character + 64]) if character < 32 else shown)
            rest = bytes(self._line[self._cursor :])
            self._screen(rest + b"\b" * _width(rest) if rest else b"")

    def _erase(self, num_bytes: int) -> None:
        """Erase whole UTF-8 characters before the cursor."""
        for _ in range(num_bytes):
            if start := self._cursor:
                start -= len(_last_character(self._line[:start]))
                del self._line[start : self._cursor]
                self._screen(b"\b" + self._line[start:] + b" \b")
                self._screen(b"\b" * _width(self._line[start:]))

    @property
    def _cursor(self) -> int:
        return len(self._line) - self._num_after

    def _clear(self) -> None:
        self._line.clear()
        self._num_after, self._history_at = 0, len(self._history)

    def _edit(self, key: str) -> None:
        """Handle a key that moves the cursor or recalls a line from the history."""
        if key in ("up", "down"):
            at = self._history_at + (1 if key == "down" else -1)
            if 0 <= at <= len(self._history):
                before = _width(self._line[: self._cursor])
                self._line[:] = [*self._history, b""][at]
                self._num_after, self._history_at = 0, at
                self._screen(b"\b" * before + b"\x1b[J" + self._line)
        elif key == "left":
            passed = bytes(_last_character(self._line[: self._cursor]))
            self._screen(b"\b" * _width(passed))
            self._num_after += len(passed)
        elif key == "right":
            passed = bytes(self._line[self._cursor :]).decode("utf-8", "replace")[:1].encode()
            self._screen(passed)
            self._num_after -= len(passed)


def _is_complete(sequence: bytes) -> bool:
    """Return whether the escape sequence of a key is complete."""
    if len(sequence) > 8:
        return True
    return len(sequence) > 1 and (
        sequence[1] not in b"[O" or (len(sequence) > 2 and 0x40 <= sequence[-1] <= 0x7E)
    )


def _last_character(line: bytearray) -> bytes:
    """Return the bytes of the last UTF-8 character."""
    start = len(line) - 1
    while start > 0 and line[start] & 0xC0 == 0x80:
        start -= 1
    return bytes(line[max(start, 0) :])


def _width(line: bytes | bytearray) -> int:
    """Return the number of columns that text occupies."""
    return sum(byte & 0xC0 != 0x80 for byte in line)


async def converse(shell: ShellInterpreter, device: TerminalDevice | None) -> None:
    """Run commands as they are read; on a terminal, show prompts."""
    text, last_parsed = "", 0
    while True:
        if device is not None:
            shell.state.io.out(_prompt(shell, text))
        line = await shell.state.io.read.through(_LINE, _MAX_LINE_LENGTH)
        if line == bytes([_INTERRUPT]) and device is not None:
            text, shell.state.code = "", INTERRUPTED
            continue
        text += line.decode("utf-8", "surrogateescape")
        is_joined = line.endswith(b"\\\n") and not line.endswith(b"\\\\\n")
        # Reparsing a long script after each line would take quadratic time.
        is_long = len(text) > _OFTEN_PARSED and len(text) < last_parsed * 9 // 8
        if line and (is_joined or is_long):
            continue
        try:
            script = parse(text)
        except (ShellSyntaxError, RecursionError) as error:
            if line and getattr(error, "is_incomplete", False) and len(text) < _MAX_LINE_LENGTH:
                last_parsed = len(text)
                continue
            shell.state.complain(str(error) or "nested too deeply")
            shell.state.code, script = 1, ()
        text, last_parsed = "", 0
        try:
            if device is None:
                await shell.run_typed(script)
            elif await device.run(shell.run_typed(script)):
                shell.state.code = INTERRUPTED
        except ShellExit as end:
            shell.state.code = end.code
            return
        await shell.state.io.drain()
        if not line:
            shell.state.io.out(b"\n" if device is not None else b"")
            return


def _prompt(shell: ShellInterpreter, text: str) -> bytes:
    """Return the Android shell's prompt, with any exit code; `> ` for a continuation line."""
    if text:
        return b"> "
    code = f"{shell.state.code}|" if shell.state.code else ""
    name = shell.state.phone.properties.get("ro.product.device", "virtual")
    shown = shell.state.environment.get("PS1", f"{code}{name}:{shell.state.environment['PWD']} $ ")
    return shown.encode("utf-8", "surrogateescape")
