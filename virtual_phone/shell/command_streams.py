"""The streams of a command."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Write = Callable[[bytes | memoryview], None]
Read = Callable[[], Awaitable[bytes]]
"""Returns the next chunk of standard input; empty at its end."""
Drain = Callable[[], Awaitable[None]]
"""Waits until there is room for more output."""


async def no_input() -> bytes:
    """Return the end of input, for a command without input."""
    return b""


async def never_full() -> None:
    """Return immediately: there is always room."""


class Input:
    """Standard input to which a command can return excess data."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._returned = b""

    async def __call__(self) -> bytes:
        """Return the next chunk; empty at the end."""
        data, self._returned = self._returned, b""
        return data or await self._read()

    async def through(self, end: re.Pattern[bytes], most: int) -> bytes:
        """Return the data through the first match of `end`, or the rest if there is none.

        Data without a match is returned once it has more than `most` bytes.
        """
        data = b""
        while chunk := await self():
            data += chunk
            found = end.search(data)
            if found is not None or len(data) > most:
                last = len(data) if found is None else found.end()
                self.put_back(data[last:])
                return data[:last]
        return data

    def put_back(self, data: bytes) -> None:
        """Return bytes, for the next reader to read first."""
        self._returned = data + self._returned


NO_INPUT = Input(no_input)
"""Input of commands without standard input."""


@dataclass(slots=True, kw_only=True)
class Terminal:
    """The terminal of an interactive shell; a client may change its size at any time."""

    rows: int = 24
    columns: int = 80


class CommandIO(NamedTuple):
    """The streams of a command."""

    out: Write
    err: Write
    read: Input = NO_INPUT
    drain: Drain = never_full
    others: Mapping[int, Write | Input] = {}
    """Open streams by file descriptor, above 2."""
    terminal: Terminal | None = None
    """Terminal of the standard streams; None if they are not connected to a terminal."""
