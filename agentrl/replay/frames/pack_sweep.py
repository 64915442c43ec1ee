"""Remove frames from a pack, and the bands that no frame is made of any more."""

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
"""Of one transaction: the pack's writer waits for it, and gives up after half a minute."""
_PAUSE_S = 0.03
"""Between two of them: whoever waits looks again every tenth of a second."""
_LAST = (1 << 63) - 1
"""The largest number that there is."""


@dataclass(slots=True, frozen=True)
class Stored:
    """A frame of a pack."""

    id: str
    bytes: int
    """That came with it: what it shares with earlier frames counts as theirs."""
    touched: float
    """When it was last seen, seconds since 1970."""


class Sweeper:
    """Knows of each band of a pack how many frames are made of it; reads what is new only.

    Its writer may go on meanwhile, but nobody else may sweep (see `overtaken`).

    Args:
        path: the pack's file.

    Raises:
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._uses: Counter[int] = Counter()
        """By the number of the band."""
        self._upto = 0
        """The number of the last frame that was counted."""
        self._new: list[Stored] = []
        self.bytes = 0
        """That the pack takes, but for what it could give back."""
        self.freed = 0
        """Bytes that were given back."""
        with self._opened() as pack:
            with changing(pack):
                self._sweeps = _sweeps(pack)
                last_frame = _value(pack, "SELECT max(number) FROM frames")
                last_band = _value(pack, "SELECT max(number) FROM bands")
            self._count_new(pack, last_frame)
            # Of bands that came with frames that are gone, some are others' as well.
            self.bytes = sum(_bytes_of_bands(pack, last_band))

    def overtaken(self) -> bool:
        """Whether somebody else swept since: what is counted here is wrong then."""
        with self._opened() as pack:
            return _sweeps(pack) != self._sweeps

    def new(self) -> Iterator[Stored]:
        """Frames that were stored since this was last asked.

        Raises:
            OSError: the pack cannot be read.
        """
        with self._opened() as pack:
            self._count_new(pack)
        new, self._new = self._new, []
        yield from new

    def remove(self, ids: Sequence[str], touched_until: float) -> list[str]:
        """Remove frames that were not touched later, some at once: their writer gets its turns.

        Returns:
            The ids of those that are not there any more.

        Raises:
            OSError: the pack cannot be changed.
        """
        gone: list[str] = []
        with self._opened() as pack:
            for first in range(0, len(ids), _FRAMES_AT_ONCE):
                some = ids[first : first + _FRAMES_AT_ONCE]
                gone += self._remove_some(pack, some, touched_until)
                time.sleep(_PAUSE_S)
            _give_room_back(pack)
        return gone

    def _remove_some(
        self, pack: sqlite3.Connection, ids: Sequence[str], touched_until: float
    ) -> list[str]:
        self._count_new(pack)
        with changing(pack):
            # What the writer added until now may be made of the same bands.
            self._count_new(pack)
            gone = [id for id in ids if self._remove(pack, bytes.fromhex(id), touched_until)]
            self._sweeps += 1
            pack.execute(f"PRAGMA user_version = {self._sweeps}")
        return gone

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with disk_errors(self._path), closing(connect(self._path)) as pack:
            yield pack

    def _count_new(self, pack: sqlite3.Connection, upto: int = _LAST) -> None:
        asked = (
            "SELECT number, id, bands, bytes, touched FROM frames WHERE number > ? AND number <= ? "
            f"ORDER BY number LIMIT {_FRAMES_AT_ONCE}"
        )
        try:
            while rows := pack.execute(asked, (self._upto, upto)).fetchall():
                for number, id, bands, size, touched in rows:
                    self._uses.update(_numbers(bands))
                    self._upto = number
                    self.bytes += int(size)
                    self._new.append(Stored(id.hex(), int(size), float(touched)))
        except (AttributeError, OverflowError, TypeError, ValueError) as error:
            raise OSError(f"{self._path}: a frame of it is none: {error}") from error

    def _remove(self, pack: sqlite3.Connection, id: bytes, touched_until: float) -> bool:
        asked = "SELECT touched, bands FROM frames WHERE id = ?"
        row = pack.execute(asked, (id,)).fetchone()
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
    asked = f"SELECT sum({ON_DISK}) FROM bands WHERE number > ? AND number <= ?"
    for first in range(0, last, _BANDS_AT_ONCE):
        yield _value(pack, asked, (first, min(first + _BANDS_AT_ONCE, last)))


def _give_room_back(pack: sqlite3.Connection) -> None:
    """To the disk, as far as a pack can."""
    left = _value(pack, "PRAGMA freelist_count")
    while left:
        # `execute` would stop after its first page.
        pack.executescript(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
        before, left = left, _value(pack, "PRAGMA freelist_count")
        if left >= before:
            return
        time.sleep(_PAUSE_S)


def _sweeps(pack: sqlite3.Connection) -> int:
    return _value(pack, "PRAGMA user_version")


def _value(pack: sqlite3.Connection, asked: str, values: tuple[int, ...] = ()) -> int:
    row = pack.execute(asked, values).fetchone()
    return int(row[0] or 0) if row else 0


def _numbers(bands: bytes) -> set[int]:
    return set(np.frombuffer(bands, NUMBERS).tolist())
