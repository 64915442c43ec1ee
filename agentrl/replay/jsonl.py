"""Append-only JSON Lines files."""

import errno
import json
import os
from pathlib import Path
from typing import Any


class JsonlWriter:
    """Appends each line with a single write, so that others can read the file meanwhile.

    Args:
        path: the file; created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        size = os.fstat(self._file).st_size
        self._is_torn = size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
        """Whether the file ends with a partial line from a killed writer; readers skip it."""

    def append(self, entry: dict[str, Any]) -> None:
        """Append one line.

        Raises:
            OSError: the disk is full.
        """
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
