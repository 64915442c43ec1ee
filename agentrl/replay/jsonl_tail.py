"""JSON lines that somebody else is still appending to."""

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
"""Bytes by which a file is known again; lines of indexes have the time."""


@dataclass(slots=True)
class Tail:
    """A file of JSON lines, of which only what is new is read."""

    path: Path
    read: int = 0
    _head: bytes = b""
    _seen: tuple[int, int, int] | None = None
    """Its inode, size and time of change when it was last looked at."""

    def is_replaced(self) -> bool:
        """Whether this is no longer the file that was read: removed, or another of its name."""
        if not self.read:
            return False
        try:
            found = self.path.stat()
            # An inode is soon used again, and another file may be as long.
            seen = found.st_ino, found.st_size, found.st_mtime_ns
            if seen == self._seen:
                return False
            with open(self.path, "rb", opener=open_regular) as file:
                head = file.read(len(self._head))
        except FileNotFoundError:
            return True
        except OSError:
            return False  # `new` tells it
        self._seen = seen
        return found.st_size < self.read or head != self._head

    def new(self) -> Iterator[dict[str, Any]]:
        """The objects of the whole lines that were appended since.

        Raises:
            ConfigError: it is no file, or closed to us.
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
                log.debug("%s: a torn line is skipped", self.path)
                continue
            if isinstance(entry, dict):
                yield entry


class Tails:
    """The files of one folder that are appended to, also those that come later.

    Args:
        folder: where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tails: dict[Path, Tail] = {}

    def are_replaced(self) -> bool:
        """Whether one of them is no longer the file that was read."""
        return any(tail.is_replaced() for tail in self._tails.values())

    def clear(self) -> None:
        """Read them from the beginning again."""
        self._tails.clear()

    def new(self, pattern: str) -> Iterator[dict[str, Any]]:
        """The objects that were appended since to files of such a name.

        Raises:
            ConfigError: as `Tail.new`.
        """
        for path in sorted(self._folder.glob(pattern)):
            yield from self._tails.setdefault(path, Tail(path)).new()
