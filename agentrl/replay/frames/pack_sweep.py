"""Remove frames from a pack, and bands that no other frame uses."""

import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agentrl.replay.frames.frame_pack import NUMBERS, ON_DISK, changing, connect, disk_errors

_FRAMES_AT_ONCE = 1_000
_BANDS_AT_ONCE = 20_000
_PAGES_AT_ONCE = 5_000
"""Rows or pages per transaction; the pack's writer waits up to 30 seconds for each."""
_PAUSE_S = 0.03
"""Pause between transactions, in seconds; a waiting writer retries every 0.1 seconds."""
_LAST = (1 << 63) - 1
"""The largest integer in SQLite."""


@dataclass(slots=True, frozen=True)
class StoredFrame:
    """A frame in a pack."""

    id: str
    bytes: int
    """Bytes added by storing the frame; a shared band counts for the first frame that uses it."""
    touched: float
    """Time at which the frame was last seen, in seconds since 1970."""


class PackSweeper:
    """Removes a pack's frames, counting how many frames use each band.

    The pack's writer may keep writing, but only one process may sweep (see `overtaken`).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._uses: Counter[int] = Counter()
        """Number of frames that use each band, by band number."""
        self._upto = 0
        """Number of the last counted frame."""
        self._new: list[StoredFrame] = []
        self.bytes = 0
        """Bytes of all bands in the pack."""
        self.freed = 0
        """Bytes freed so far."""
        with self._opened() as pack:
            with changing(pack):
                self._sweeps = _sweeps(pack)
                last_frame = _value(pack, "SELECT max(number) FROM frames")
                last_band = _value(pack, "SELECT max(number) FROM bands")
            self._count_new(pack, last_frame)
            # Bands of removed frames may still be used by other frames.
            self.bytes = sum(_bytes_of_bands(pack, last_band))

    def overtaken(self) -> bool:
        """Whether another process has swept in the meantime, making the counts here wrong."""
        with self._opened() as pack:
            return _sweeps(pack) != self._sweeps

    def new(self) -> Iterator[StoredFrame]:
        """Yield the frames stored since the last call."""
        with self._opened() as pack:
            self._count_new(pack)
        new, self._new = self._new, []
        yield from new

    def remove(self, ids: Sequence[str], touched_until: float) -> list[str]:
        """Remove frames not touched after a time, in small transactions that let the writer in.

        Returns:
            The ids of frames that are no longer in the pack.
        """
        gone: list[str] = []
        with self._opened() as pack:
            for first in range(0, len(ids), _FRAMES_AT_ONCE):
                chunk = ids[first : first + _FRAMES_AT_ONCE]
                # Count most new frames before the transaction, to keep it short.
                self._count_new(pack)
                with changing(pack):
                    # Frames added by the writer since then may use the same bands.
                    self._count_new(pack)
                    gone += [
                        id for id in chunk if self._remove(pack, bytes.fromhex(id), touched_until)
                    ]
                    self._sweeps += 1
                    pack.execute(f"PRAGMA user_version = {self._sweeps}")
                time.sleep(_PAUSE_S)
            _vacuum(pack)
        return gone

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with disk_errors(self._path), closing(connect(self._path)) as pack:
            yield pack

    def _count_new(self, pack: sqlite3.Connection, upto: int = _LAST) -> None:
        query = (
            "SELECT number, id, bands, bytes, touched FROM frames WHERE number > ? AND number <= ? "
            f"ORDER BY number LIMIT {_FRAMES_AT_ONCE}"
        )
        try:
            while rows := pack.execute(query, (self._upto, upto)).fetchall():
                for number, id, bands, size, touched in rows:
                    self._uses.update(_numbers(bands))
                    self._upto = number
                    self.bytes += int(size)
                    self._new.append(StoredFrame(id.hex(), int(size), float(touched)))
        except (AttributeError, OverflowError, TypeError, ValueError) as error:
            raise OSError(f"{self._path}: invalid frame: {error}") from error

    def _remove(self, pack: sqlite3.Connection, id: bytes, touched_until: float) -> bool:
        row = pack.execute("SELECT touched, bands FROM frames WHERE id = ?", (id,)).fetchone()
        if row is None:
            return True
        if row[0] > touched_until:
            return False
        pack.execute("DELETE FROM frames WHERE id = ?", (id,))
        for band in _numbers(row[1]):
            self._uses[band] -= 1
            if not self._uses[band]:
                del self._uses[band]
                size = _value(pack, f"SELECT {ON_DISK} FROM bands WHERE number = ?", (band,))
                pack.execute("DELETE FROM bands WHERE number = ?", (band,))
                self.bytes, self.freed = self.bytes - size, self.freed + size
        return True


def _bytes_of_bands(pack: sqlite3.Connection, last: int) -> Iterator[int]:
    query = f"SELECT sum({ON_DISK}) FROM bands WHERE number > ? AND number <= ?"
    for first in range(0, last, _BANDS_AT_ONCE):
        yield _value(pack, query, (first, min(first + _BANDS_AT_ONCE, last)))


def _vacuum(pack: sqlite3.Connection) -> None:
    """Return free pages to the file system."""
    left = _value(pack, "PRAGMA freelist_count")
    while left:
        # The pragma frees one page per row fetched; `execute` would fetch only one row.
        pack.executescript(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
        before, left = left, _value(pack, "PRAGMA freelist_count")
        if left >= before:
            return
        time.sleep(_PAUSE_S)


def _sweeps(pack: sqlite3.Connection) -> int:
    return _value(pack, "PRAGMA user_version")


def _value(pack: sqlite3.Connection, query: str, values: tuple[int, ...] = ()) -> int:
    row = pack.execute(query, values).fetchone()
    return int(row[0] or 0) if row else 0


def _numbers(bands: bytes) -> set[int]:
    return set(np.frombuffer(bands, NUMBERS).tolist())
