"""The phone's log."""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, get_args

from virtual_phone.system.asyncio_wakeup import Wakeup

Level = Literal["V", "D", "I", "W", "E", "F"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""Levels in order of increasing severity."""
BUFFERS = ("main", "radio", "events", "system", "crash", "stats", "security", "kernel")
"""Buffers in the order of Android's buffer numbers."""
_SYSTEM_TAGS = frozenset(("ActivityManager", "ActivityTaskManager", "boot"))

_MAX_ENTRIES = 2000
_MAX_TEXT_LENGTH = 4000


@dataclass(slots=True, kw_only=True, frozen=True)
class LogEntry:
    """An entry of the log."""

    time_s: float
    """Seconds since 1970, by the phone's clock."""
    level: Level
    tag: str
    pid: int
    text: str

    @property
    def buffer(self) -> str:
        """Log buffer that holds the entry."""
        if self.tag == "AndroidRuntime":
            return "crash"
        return "system" if self.tag in _SYSTEM_TAGS else "main"


class DeviceLog:
    """Most recent entries of the phone's log."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.entries: deque[LogEntry] = deque(maxlen=_MAX_ENTRIES)
        self._now_s = now_s
        self.num_written = 0
        """Number of entries ever written."""
        self._written = Wakeup()

    def add(self, tag: str, text: str, level: Level = "I", pid: int = 1000) -> None:
        """Append an entry."""
        text, tag = text[:_MAX_TEXT_LENGTH], tag[:_MAX_TEXT_LENGTH]
        entry = LogEntry(time_s=self._now_s(), level=level, tag=tag, pid=pid, text=text)
        self.entries.append(entry)
        self.num_written += 1
        self._written.notify()

    def clear(self, buffers: Collection[str]) -> None:
        """Remove the entries of the given buffers."""
        kept = [entry for entry in self.entries if entry.buffer not in buffers]
        self.entries.clear()
        self.entries.extend(kept)

    def since(self, number: int) -> list[LogEntry]:
        """Return the entries written after the first `number`, as far as they are still stored."""
        num_new = min(self.num_written - number, len(self.entries))
        return list(self.entries)[len(self.entries) - num_new :] if num_new > 0 else []

    async def wait(self, number: int) -> None:
        """Wait until more than `number` entries have been written."""
        while self.num_written <= number:
            await self._written.wait()
