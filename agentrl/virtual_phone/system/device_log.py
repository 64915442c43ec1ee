"""What a phone writes down: its log, and the commands that its shell ran."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from agentrl.virtual_phone.system.event import Bell

Level = Literal["V", "D", "I", "W", "E", "F"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""From the least to the gravest."""

_MOST_ENTRIES = 2000
_LONGEST_TEXT = 4000
_MOST_COMMANDS = 1000
_MOST_CHARACTERS = 2_000_000


@dataclass(slots=True, kw_only=True, frozen=True)
class Entry:
    """One line of the log."""

    time_s: int
    """Since 1970, by the phone's own clock."""
    level: Level
    tag: str
    pid: int
    text: str


class Log:
    """The last lines of the log."""

    def __init__(self, now_s: Callable[[], int]) -> None:
        """Empty.

        Args:
            now_s: the phone's clock, in seconds since 1970.
        """
        self.entries: deque[Entry] = deque(maxlen=_MOST_ENTRIES)
        self.now_s = now_s
        self._num_written = 0
        self._written = Bell()

    def add(self, tag: str, text: str, level: Level = "I", pid: int = 1000) -> None:
        """Write a line."""
        text, tag = text[:_LONGEST_TEXT], tag[:_LONGEST_TEXT]
        entry = Entry(time_s=self.now_s(), level=level, tag=tag, pid=pid, text=text)
        self.entries.append(entry)
        self._num_written += 1
        self._written.ring()

    @property
    def num_written(self) -> int:
        """Lines that were ever written."""
        return self._num_written

    def since(self, number: int) -> list[Entry]:
        """The lines after the first `number`, as far as they are still known."""
        num_new = min(self._num_written - number, len(self.entries))
        return list(self.entries)[len(self.entries) - num_new :] if num_new > 0 else []

    async def wait(self, number: int) -> None:
        """Wait until more than `number` lines were written."""
        while self._num_written <= number:
            await self._written.wait()


class Seen:
    """The last commands that the shell ran, as they came, newest last."""

    def __init__(self) -> None:
        """None yet."""
        self._commands: deque[tuple[str, ...]] = deque()
        self._num_characters = 0

    def add(self, command: tuple[str, ...]) -> None:
        """Remember one; the oldest are forgotten when they are many or long."""
        self._commands.append(command)
        self._num_characters += _length(command)
        while len(self._commands) > _MOST_COMMANDS or self._num_characters > _MOST_CHARACTERS:
            self._num_characters -= _length(self._commands.popleft())

    def clear(self) -> None:
        """Forget all."""
        self._commands.clear()
        self._num_characters = 0

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        """From the oldest to the newest."""
        return iter(self._commands)

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._commands)


def _length(command: tuple[str, ...]) -> int:
    return sum(map(len, command)) + len(command)
