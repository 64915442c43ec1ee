"""Append to JSON Lines files, and read files that other processes are still appending to."""

import errno
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError
from agentrl.files import open_regular

_HEAD = 512
"""Number of leading bytes compared to detect a replaced file, as index lines start with a time."""
_SETTLED_NS = 2_000_000_000
"""Age after which a modification time is reliable, above any file system's resolution."""


class JsonlWriter:
    """Writer that appends each line immediately, so that other processes can read it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        size = os.fstat(self._file).st_size
        self._is_torn = size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
        """Whether the file ends with a killed writer's incomplete line, which readers skip."""

    def append(self, entry: dict[str, Any]) -> None:
        """Append one line."""
        line = b"\n" * self._is_torn + json.dumps(entry).encode() + b"\n"
        written = os.write(self._file, line)
        self._is_torn = written < len(line)
        if self._is_torn:
            raise OSError(errno.ENOSPC, "the disk is full")

    def sync(self) -> None:
        """Flush all appended lines to disk."""
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def append_durably(path: Path, entries: Iterable[dict[str, Any]]) -> None:
    """Append lines to a file, creating it if missing, and flush them to disk."""
    with closing(JsonlWriter(path)) as writer:
        for entry in entries:
            writer.append(entry)
        writer.sync()


@dataclass(slots=True)
class JsonlTail:
    """Reader of a growing JSON Lines file, which reads only new lines."""

    path: Path
    read: int = 0
    _head: bytes = b""
    _seen: tuple[int, int, int] | None = None
    """Inode, size and modification time at the last check of the file."""

    def is_replaced(self) -> bool:
        """Return whether the file that was read has been removed or replaced."""
        if not self.read:
            return False
        try:
            status = self.path.stat()
            # Inode numbers are quickly reused, and the new file may be as long as the old file.
            seen = status.st_ino, status.st_size, status.st_mtime_ns
            if seen == self._seen:
                return False
            with open(self.path, "rb", opener=open_regular) as file:
                head = file.read(len(self._head))
        except FileNotFoundError:
            return True
        # `new` reports any other error.
        except OSError:
            return False
        self._seen = seen
        return status.st_size < self.read or head != self._head

    def new(self) -> Iterator[dict[str, Any]]:
        """Parse the complete lines appended since the last call.

        Raises:
            ConfigError: the file is not a regular file, or cannot be read.
        """
        try:
            if self.path.is_file() and self.path.stat().st_size == self.read:
                return
            with open(self.path, "rb", opener=open_regular) as file:
                file.seek(self.read)
                while (line := file.readline()).endswith(b"\n"):
                    # Count after each line, so that `share` reports the progress in long files.
                    self.read += len(line)
                    self._head += line[: _HEAD - len(self._head)]
                    # A killed writer leaves an incomplete line, which the next writer ends.
                    with suppress(ValueError, RecursionError):
                        if isinstance(entry := json.loads(line), dict):
                            yield entry
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be read: {error}") from error


def read_lines(path: Path, label: str) -> list[dict[str, Any]]:
    """Return a file's entries that have a step and this key; empty if the file does not exist.

    Raises:
        ConfigError: the file is not a regular file, or cannot be read.
    """
    entries = JsonlTail(path).new() if path.is_file() else ()
    return [
        entry
        for entry in entries
        if isinstance(entry.get(label), str) and isinstance(entry.get("step"), int)
    ]


class JsonlTails:
    """The growing JSON Lines files of one folder, including files created later."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tails: dict[Path, JsonlTail] = {}
        self._files: list[Path] = []
        self._listed_at_ns: int | None = None
        """The folder's modification time when last listed; None if it must be listed again."""

    def are_replaced(self) -> bool:
        """Return whether a file that was read has been removed or replaced."""
        return any(tail.is_replaced() for tail in self._tails.values())

    def share(self, patterns: Sequence[str]) -> float:
        """Return the fraction of the matching files read so far, even while being read."""
        read = size = 0
        for path in self._listed():
            if any(fnmatchcase(path.name, pattern) for pattern in patterns):
                with suppress(FileNotFoundError):
                    size += path.stat().st_size
                read += self._tails[path].read if path in self._tails else 0
        return read / max(1, size)

    def clear(self) -> None:
        """Start over, reading all files from the beginning."""
        self._tails.clear()

    def new(self, pattern: str) -> Iterator[dict[str, Any]]:
        """Parse the lines appended since the last call to files matching a glob pattern."""
        for path in self._listed():
            if fnmatchcase(path.name, pattern):
                yield from self._tails.setdefault(path, JsonlTail(path)).new()

    def _listed(self) -> list[Path]:
        """Return the folder's JSON Lines files in order."""
        # The folder may contain thousands of files, so list it only if it has changed.
        try:
            modified = self._folder.stat().st_mtime_ns
        except OSError:
            return []
        if modified != self._listed_at_ns:
            # `glob` also lists broken links, which cannot be read.
            self._files = sorted(path for path in self._folder.glob("*.jsonl") if path.exists())
            # A file created within the timestamp's resolution may leave the timestamp unchanged.
            settled = time.time_ns() - modified > _SETTLED_NS
            self._listed_at_ns = modified if settled else None
        return self._files
