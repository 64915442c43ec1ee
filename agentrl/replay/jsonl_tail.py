"""Read JSON Lines files that another process is still appending to."""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError
from agentrl.files import open_regular

log = logging.getLogger(__name__)

_HEAD = 512
"""First bytes by which a replaced file is noticed: index lines contain the time."""


@dataclass(slots=True)
class JsonlTail:
    """A JSON Lines file of which only new lines are read."""

    path: Path
    read: int = 0
    _head: bytes = b""
    _seen: tuple[int, int, int] | None = None
    """Inode, size and modification time when the file was last examined."""

    def is_replaced(self) -> bool:
        """Whether the file that was read has been removed or replaced."""
        if not self.read:
            return False
        try:
            found = self.path.stat()
            # An inode alone is not enough: it is soon reused, and the new file may be as long.
            seen = found.st_ino, found.st_size, found.st_mtime_ns
            if seen == self._seen:
                return False
            with open(self.path, "rb", opener=open_regular) as file:
                head = file.read(len(self._head))
        except FileNotFoundError:
            return True
        except OSError:
            return False  # `new` reports it
        self._seen = seen
        return found.st_size < self.read or head != self._head

    def new(self) -> Iterator[dict[str, Any]]:
        """Parse the complete lines appended since the last call.

        Raises:
            ConfigError: it is not a regular file, or cannot be read.
        """
        try:
            if self.path.is_file() and self.path.stat().st_size == self.read:
                return
            with open(self.path, "rb", opener=open_regular) as file:
                file.seek(self.read)
                content = file.read()
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be read: {error}") from error
        whole = content.rfind(b"\n") + 1
        if not self.read:
            self._head = content[: min(whole, _HEAD)]
        self.read += whole
        for line in content[:whole].split(b"\n"):
            if not line:
                continue
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                log.debug("%s: skipped a partial line", self.path)
                continue
            if isinstance(entry, dict):
                yield entry


class JsonlTails:
    """The growing JSON Lines files of one folder, including files created later.

    Args:
        folder: the folder of the files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tails: dict[Path, JsonlTail] = {}

    def are_replaced(self) -> bool:
        """Whether one of the files that were read has been removed or replaced."""
        return any(tail.is_replaced() for tail in self._tails.values())

    def clear(self) -> None:
        """Read all files from the beginning again."""
        self._tails.clear()

    def new(self, pattern: str) -> Iterator[dict[str, Any]]:
        """Parse the lines appended since the last call to files matching a glob pattern.

        Raises:
            ConfigError: as `Tail.new`.
        """
        for path in sorted(self._folder.glob(pattern)):
            yield from self._tails.setdefault(path, JsonlTail(path)).new()
