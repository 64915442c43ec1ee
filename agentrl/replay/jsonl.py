"""Files of JSON lines that are only ever appended to."""

import errno
import json
import os
from pathlib import Path
from typing import Any


class Lines:
    """Appends one whole line per write, so that several readers may look on.

    Args:
        path: the file; made if need be.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        size = os.fstat(self._file).st_size
        self._is_torn = size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
        """Whether it ends with half a line, as of a killed writer: readers skip it."""

    def append(self, entry: dict[str, Any]) -> None:
        """Add a line.

        Raises:
            OSError: the disk is full.
        """
        line = b"\n" * self._is_torn + json.dumps(entry).encode() + b"\n"
        written = os.write(self._file, line)
        self._is_torn = written < len(line)
        if self._is_torn:
            raise OSError(errno.ENOSPC, "the disk is full")

    def sync(self) -> None:
        """Have all that was appended on disk before anything follows."""
        os.fsync(self._file)

    def close(self) -> None:
        """Append no more."""
        os.close(self._file)
