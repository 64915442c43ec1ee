"""The frames of one writer, in one SQLite file; what screens have in common stands there once.

Journals, not a write-ahead log: readers on other machines may look on over a network's disk.
"""

import sqlite3
import struct
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from agentrl.replay.frames import banded_png
from agentrl.replay.frames.bands import Cut

_T = TypeVar("_T")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS bands (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    height INTEGER NOT NULL,
    adler INTEGER NOT NULL,
    deflated BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS frames (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    width INTEGER NOT NULL,
    bands BLOB NOT NULL,
    bytes INTEGER NOT NULL,
    touched REAL NOT NULL
);
"""
NUMBERS = "<i8"
"""How `frames.bands` lists the numbers of its bands."""
ON_DISK = "length(deflated) * 6 / 5"
"""What a band takes, in SQL: SQLite's pages add a fifth (the number game's, 4096 bytes a page).
`_on_disk` says the same."""
_PATIENCE_S = 30.0
_READ_S = 10.0
_STEPS = 100_000
"""Of SQLite's machine, between two looks at the clock."""
_REMEMBERED = 100_000
_AT_ONCE = 150
"""Rows of a statement: older SQLite takes 999 values."""
_MOST_BYTES = 256 << 20
"""Of one PNG and of its pixels; nobody's screen takes as much."""


def connect(path: Path, mode: Literal["rw", "rwc"] = "rw") -> sqlite3.Connection:
    """Open a pack; what it says in SQL is data, also where a stranger made it.

    Raises:
        sqlite3.Error: it is not there, or is none.
    """
    # Not read-only: a reader may have to take back what a killed writer had begun.
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False,
    )  # fmt: skip
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


class PackWriter:
    """Adds frames to a pack; for one thread at a time.

    Args:
        path: the pack's file; made if need be.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        """Of the bands that were met last, by their digests."""
        self._version = 0
        with disk_errors(path):
            self._connection = connect(path, "rwc")
            self._connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._connection.execute("PRAGMA journal_mode = PERSIST")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}COMMIT;")

    def add(self, cuts: Iterable[Cut]) -> tuple[int, int]:
        """Add frames, all or none; those that are there already count as shown just now.

        Returns:
            How many were not there, and the bytes that they took.

        Raises:
            OSError: they cannot be written.
        """
        now, by_id = time.time(), {bytes.fromhex(cut.id): cut for cut in cuts}
        try:
            with disk_errors(self._path), changing(self._connection):
                self._forget_what_changed()
                for id in self._touched(list(by_id), now):
                    del by_id[id]
                return len(by_id), self._insert(by_id, now)
        except BaseException:
            self._numbers.clear()  # some may never have come to be
            raise

    def close(self) -> None:
        """Add no more."""
        with suppress(sqlite3.Error):  # somebody reads just now: the journal stays, empty
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def _forget_what_changed(self) -> None:
        """Bands that others removed must be written anew."""
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._numbers.clear()

    def _touched(self, ids: Sequence[bytes], now: float) -> list[bytes]:
        """Those that are there."""
        found: list[bytes] = []
        for some in _chunks(ids):
            among = f"WHERE id IN ({', '.join('?' * len(some))})"
            rows = self._connection.execute(f"SELECT id FROM frames {among}", some).fetchall()
            if rows:
                self._connection.execute(f"UPDATE frames SET touched = ? {among}", (now, *some))
            found += [id for (id,) in rows]
        return found

    def _insert(self, cuts: Mapping[bytes, Cut], now: float) -> int:
        """Bytes that they took: of bands that were not there."""
        bands: list[tuple[object, ...]] = []
        frames: list[tuple[object, ...]] = []
        total, last = 0, self._last_band()
        for id, cut in cuts.items():
            size, numbers = 0, []
            for digest, pixels in cut.bands():
                if (number := self._numbers.get(digest)) is None:
                    number = last = last + 1
                    band = banded_png.compress(pixels)
                    bands.append((number, band.height, band.adler, band.deflated))
                    size += _on_disk(band.deflated)
                self._remember(digest, number)
                numbers.append(number)
            packed = np.array(numbers, NUMBERS).tobytes()
            frames.append((id, cut.pixels.shape[1], packed, size, now))
            total += size
        self._insert_all("bands (number, height, adler, deflated)", bands)
        self._insert_all("frames (id, width, bands, bytes, touched)", frames)
        return total

    def _last_band(self) -> int:
        asked = "SELECT seq FROM sqlite_sequence WHERE name = 'bands'"
        row = self._connection.execute(asked).fetchone()
        return row[0] if row else 0

    def _insert_all(self, into: str, rows: Sequence[tuple[object, ...]]) -> None:
        # One statement for many rows: each one waits for the interpreter's lock.
        for some in _chunks(rows):
            each = f"({', '.join('?' * len(some[0]))})"
            values = [value for row in some for value in row]
            self._connection.execute(
                f"INSERT INTO {into} VALUES {', '.join([each] * len(some))}", values
            )

    def _remember(self, digest: bytes, number: int) -> None:
        self._numbers[digest] = number
        self._numbers.move_to_end(digest)
        if len(self._numbers) > _REMEMBERED:
            self._numbers.popitem(last=False)


def _on_disk(deflated: bytes) -> int:
    return len(deflated) * 6 // 5


def _chunks(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    return (values[at : at + _AT_ONCE] for at in range(0, len(values), _AT_ONCE))


def read_png(path: Path, frame_id: str) -> bytes | None:
    """The PNG of a frame; None if this pack has none of that id, or is damaged."""
    try:
        with _reading(path) as connection:
            connection.execute("BEGIN")  # whole, whatever is removed meanwhile
            return _png(connection, bytes.fromhex(frame_id))
    except (sqlite3.Error, struct.error, OverflowError, TypeError, ValueError):
        return None


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(path)) as connection:
        ends = time.monotonic() + _READ_S  # a stranger's tables may have no end
        connection.set_progress_handler(lambda: time.monotonic() > ends, _STEPS)
        yield connection


def _png(connection: sqlite3.Connection, id: bytes) -> bytes | None:
    row = connection.execute("SELECT width, bands FROM frames WHERE id = ?", (id,)).fetchone()
    if row is None:
        return None
    width, bands, room = row[0], list[banded_png.Band](), _MOST_BYTES
    for number in np.frombuffer(row[1], NUMBERS).tolist():
        band = connection.execute(
            "SELECT height, deflated, adler FROM bands WHERE number = ?", (number,)
        ).fetchone()
        if band is None:
            return None
        bands.append(banded_png.Band(*band))
        room -= max(len(bands[-1].deflated), 3 * width * bands[-1].height)
        if room < 0 or not bands[-1].is_sound(width):
            return None
    return banded_png.join(width, bands)


def holds(path: Path, frame_id: str) -> bool:
    """Whether a frame is in a pack; False where the pack is damaged."""
    try:
        with _reading(path) as connection:
            asked = "SELECT 1 FROM frames WHERE id = ?", (bytes.fromhex(frame_id),)
            return connection.execute(*asked).fetchone() is not None
    except sqlite3.Error:
        return False


@contextmanager
def changing(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is done within, or nothing of it; nobody else changes anything meanwhile."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk may have ended it already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as OSError, with the file's name."""
    try:
        yield
    except sqlite3.Error as error:
        raise OSError(f"{path}: {error}") from error
