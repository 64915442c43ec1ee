"""A journal of finished rows, from which a killed job can continue."""

import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError
from agentrl.text.formatting import one_line

_SYNC_S = 1.0
"""Interval in seconds for syncing the journal to disk; only a machine crash can lose later rows."""


class RowJournal:
    """A file of finished rows, one per line; the first line identifies the job that wrote it.

    A row is written before `add` returns, so that no row is lost if the process ends. A truncated
    line is dropped when the journal is opened again.

    Args:
        path: the journal's file; created if missing.
        job: everything that determines the results, as JSON values.

    Raises:
        ConfigError: the file belongs to another job, is open in another process, or cannot be
            written.
    """

    def __init__(self, path: Path, job: Mapping[str, Any]) -> None:
        self.path = path
        self._offsets: dict[int, int] = {}
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error}") from error
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigError(
                    f"{path}: another process is writing to this file; wait until it finishes, or "
                    "stop it"
                ) from None
            self._read(json.loads(json.dumps(job)))  # in the form in which it will be read back
        except BaseException:
            os.close(self._file)
            raise
        self._synced = time.monotonic()

    def _read(self, job: dict[str, Any]) -> None:
        end = 0
        with os.fdopen(os.dup(self._file), "rb") as lines:
            lines.seek(0)
            for line in lines:
                if not line.endswith(b"\n"):  # truncated because the process was killed
                    break
                if end == 0:
                    self._check_job(line, job)
                else:
                    self._offsets[int(json.loads(line)["row"])] = end
                end += len(line)
        os.ftruncate(self._file, end)
        self._end = end
        if end == 0:
            self._append(job)

    def _check_job(self, line: bytes, job: dict[str, Any]) -> None:
        try:
            begun = json.loads(line)
            assert isinstance(begun, dict)
        except (ValueError, AssertionError):
            raise ConfigError(
                f"{self.path}: not a journal of `agentrl infer`; remove the file, or use a "
                "different output name"
            ) from None
        if begun == job:
            return
        before, now = _flat(begun), _flat(job)
        # These values are lists of files and digests, which are not readable.
        found = {"weights": "the files of the model", "content": "the rows of the data"}
        listed = "; ".join(
            found.get(key)
            or f"{key} ({one_line(str(before.get(key)), 60)} then, "
            f"{one_line(str(now.get(key)), 60)} now)"
            for key in {**before, **now}
            if before.get(key) != now.get(key)
        )
        raise ConfigError(
            f"{self.path}: contains the rows of another job, which differs in {listed}. Continue "
            "with the same settings, or remove the file to start over"
        )

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, row: int) -> bool:
        return row in self._offsets

    def add(self, row: int, result: Mapping[str, Any]) -> None:
        """Write the result of a row.

        Raises:
            OSError: the disk is full or failing.
        """
        assert row not in self._offsets, f"row {row} is already recorded"
        offset = self._end
        self._append({"row": row, **result})
        self._offsets[row] = offset
        if time.monotonic() - self._synced > _SYNC_S:
            self._synced = time.monotonic()
            os.fdatasync(self._file)

    def _append(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record).encode() + b"\n"
        written = os.write(self._file, line)
        self._end += written
        if written < len(line):
            raise OSError(f"{self.path}: only part of a line could be written; is the disk full?")

    def result(self, row: int) -> dict[str, Any]:
        """Return the result of a row that has been added."""
        offset, parts = self._offsets[row], list[bytes]()
        while not parts or b"\n" not in parts[-1]:
            parts.append(os.pread(self._file, 1 << 16, offset))
            offset += len(parts[-1])
        found: dict[str, Any] = json.loads(b"".join(parts).partition(b"\n")[0])
        del found["row"]
        return found

    def close(self) -> None:
        """Flush and close the file without deleting it."""
        os.fdatasync(self._file)
        os.close(self._file)


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested settings by their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
