"""A frame pack: one writer's frames in one SQLite file, which stores each distinct band once.

The file uses a rollback journal instead of a write-ahead log, so that readers on other machines can
open it over a network file system.
"""

from __future__ import annotations

import sqlite3
import struct
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from agentrl.replay.frames import banded_png
from agentrl.replay.frames.banded_png import Band, BandedImage

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
"""The dtype of the band numbers in `frames.bands`."""
ON_DISK = "length(deflated) * 6 / 5"
"""SQL expression for a band's bytes on disk: SQLite's pages add a fifth (measured on the number
game with 4096-byte pages). `_on_disk` computes the same."""
_BUSY_TIMEOUT_S = 30.0
_READ_TIMEOUT_S = 10.0
_CLOCK_EVERY = 100_000
"""SQLite virtual machine instructions between checks of the clock."""
_MAX_KNOWN_BANDS = 100_000
_ROWS_PER_STATEMENT = 150
"""Maximum rows per statement, as older versions of SQLite accept at most 999 values."""
_MAX_BYTES = 256 << 20
"""Maximum size of an accepted PNG and of its pixels, far above any real screen's."""


def connect(path: Path, mode: Literal["rw", "rwc"] = "rw") -> sqlite3.Connection:
    """Open a pack without trusting its schema, as the file may come from an untrusted source.

    Raises:
        sqlite3.Error: the file does not exist or is not a database.
    """
    # Not read-only, because a reader may have to roll back a killed writer's transaction.
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False,
    )  # fmt: skip
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def has_tables(path: Path) -> bool:
    """Whether a pack has its tables, which its writer creates shortly after the file."""
    with disk_errors(path), closing(connect(path)) as connection:
        query = "SELECT count(*) FROM sqlite_master WHERE name IN ('bands', 'frames')"
        found: tuple[int] = connection.execute(query).fetchone()
        return found == (2,)


class PackWriter:
    """Writes a pack's frames; not thread-safe."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        """Numbers of the most recently seen bands, by digest."""
        self._version = 0
        with disk_errors(path):
            self._connection = connect(path, "rwc")
            self._connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._connection.execute("PRAGMA journal_mode = PERSIST")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}COMMIT;")

    def add(self, cuts: Iterable[BandedImage]) -> None:
        """Add frames in one transaction; touch frames that are already in the pack."""
        now, by_id = time.time(), {bytes.fromhex(cut.id): cut for cut in cuts}
        try:
            with disk_errors(self._path), changing(self._connection):
                # If another process changed the pack, it may have removed bands.
                (version,) = self._connection.execute("PRAGMA data_version").fetchone()
                if version != self._version:
                    self._version = version
                    self._numbers.clear()
                for id in self._touched(list(by_id), now):
                    del by_id[id]
                self._insert(by_id, now)
        except BaseException:
            # The rollback of the transaction also removed the new bands.
            self._numbers.clear()
            raise

    def add_rows(self, rows: PackRows) -> None:
        """Add another pack's frames in one transaction; touch frames that are already here."""
        now, by_id = time.time(), {frame[0]: frame for frame in rows.frames}
        with disk_errors(self._path), changing(self._connection):
            for id in self._touched(list(by_id), now):
                del by_id[id]
            first = self._last_band() + 1
            numbers = {number: first + k for k, (number, *_) in enumerate(rows.bands)}
            frames = []
            for id, width, packed, size in by_id.values():
                own = [numbers[number] for number in np.frombuffer(packed, NUMBERS).tolist()]
                frames.append((id, width, np.array(own, NUMBERS).tobytes(), size, now))
            bands = [(numbers[number], *rest) for number, *rest in rows.bands]
            self._insert_all("bands (number, height, adler, deflated)", bands)
            self._insert_all("frames (id, width, bands, bytes, touched)", frames)

    def close(self) -> None:
        """Close the file."""
        # While a reader is active, the empty journal cannot be removed.
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def _touched(self, ids: Sequence[bytes], now: float) -> list[bytes]:
        """Touch the given frames that are in the pack, and return their ids."""
        touched: list[bytes] = []
        for chunk in _chunks(ids):
            among = f"WHERE id IN ({', '.join('?' * len(chunk))})"
            rows = self._connection.execute(f"SELECT id FROM frames {among}", chunk).fetchall()
            if rows:
                self._connection.execute(f"UPDATE frames SET touched = ? {among}", (now, *chunk))
            touched += [id for (id,) in rows]
        return touched

    def _insert(self, cuts: Mapping[bytes, BandedImage], now: float) -> None:
        """Insert frames and their new bands."""
        bands: list[tuple[object, ...]] = []
        frames: list[tuple[object, ...]] = []
        last = self._last_band()
        for id, cut in cuts.items():
            size, numbers = 0, []
            for digest, pixels in cut.bands():
                if (number := self._numbers.get(digest)) is None:
                    number = last = last + 1
                    band = banded_png.compress(pixels)
                    bands.append((number, band.height, band.adler, band.deflated))
                    size += _on_disk(band.deflated)
                self._numbers[digest] = number
                self._numbers.move_to_end(digest)
                if len(self._numbers) > _MAX_KNOWN_BANDS:
                    self._numbers.popitem(last=False)
                numbers.append(number)
            packed = np.array(numbers, NUMBERS).tobytes()
            frames.append((id, cut.pixels.shape[1], packed, size, now))
        self._insert_all("bands (number, height, adler, deflated)", bands)
        self._insert_all("frames (id, width, bands, bytes, touched)", frames)

    def _last_band(self) -> int:
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'bands'"
        row = self._connection.execute(query).fetchone()
        return row[0] if row else 0

    def _insert_all(self, into: str, rows: Sequence[tuple[object, ...]]) -> None:
        # Insert many rows per statement, because each statement waits for the GIL.
        for chunk in _chunks(rows):
            each = f"({', '.join('?' * len(chunk[0]))})"
            values = [value for row in chunk for value in row]
            self._connection.execute(
                f"INSERT INTO {into} VALUES {', '.join([each] * len(chunk))}", values
            )


@dataclass(slots=True, frozen=True)
class PackRows:
    """Frames with all their bands, for transfer from one pack to another."""

    bands: list[tuple[int, int, int, bytes]]
    """Number, height, checksum and deflated pixels of each band."""
    frames: list[tuple[bytes, int, bytes, int]]
    """Id, width, band numbers and size in bytes of each frame."""


def read_rows(path: Path) -> PackRows:
    """Return all rows of a pack, which another connection may still be writing."""
    with disk_errors(path), closing(connect(path)) as connection:
        connection.execute("BEGIN")
        return PackRows(
            connection.execute("SELECT number, height, adler, deflated FROM bands").fetchall(),
            connection.execute("SELECT id, width, bands, bytes FROM frames").fetchall(),
        )


def remove_rows(path: Path, rows: PackRows) -> None:
    """Remove rows found by `read_rows`, except bands used by frames added since then."""
    with disk_errors(path), closing(connect(path)) as connection, changing(connection):
        connection.executemany("DELETE FROM frames WHERE id = ?", [(f[0],) for f in rows.frames])
        left = connection.execute("SELECT bands FROM frames").fetchall()
        used = {n for (packed,) in left for n in np.frombuffer(packed, NUMBERS).tolist()}
        gone = [(number,) for number, *_ in rows.bands if number not in used]
        connection.executemany("DELETE FROM bands WHERE number = ?", gone)


def _on_disk(deflated: bytes) -> int:
    return len(deflated) * 6 // 5


def _chunks(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    count = _ROWS_PER_STATEMENT
    return (values[first : first + count] for first in range(0, len(values), count))


def read_png(path: Path, frame_id: str) -> bytes | None:
    """Return a frame's PNG, or None if the frame is not in the pack or the pack is damaged."""
    try:
        with _reading(path) as connection:
            # Keep a consistent view while frames are being removed.
            connection.execute("BEGIN")
            return _png(connection, bytes.fromhex(frame_id))
    except (sqlite3.Error, struct.error, OverflowError, TypeError, ValueError):
        return None


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(path)) as connection:
        # In an untrusted file, the tables may be views that yield rows forever.
        deadline = time.monotonic() + _READ_TIMEOUT_S
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _CLOCK_EVERY)
        yield connection


def _png(connection: sqlite3.Connection, id: bytes) -> bytes | None:
    row = connection.execute("SELECT width, bands FROM frames WHERE id = ?", (id,)).fetchone()
    if row is None:
        return None
    width, bands, bytes_left = row[0], list[Band](), _MAX_BYTES
    for number in np.frombuffer(row[1], NUMBERS).tolist():
        band = connection.execute(
            "SELECT height, deflated, adler FROM bands WHERE number = ?", (number,)
        ).fetchone()
        if band is None:
            return None
        bands.append(Band(*band))
        bytes_left -= max(len(bands[-1].deflated), 3 * width * bands[-1].height)
        if bytes_left < 0 or not bands[-1].is_sound(width):
            return None
    return banded_png.join(width, bands)


def holds(path: Path, frame_id: str) -> bool:
    """Return whether a frame is in a pack; False if the pack is damaged."""
    try:
        with _reading(path) as connection:
            query = "SELECT 1 FROM frames WHERE id = ?", (bytes.fromhex(frame_id),)
            return connection.execute(*query).fetchone() is not None
    except sqlite3.Error:
        return False


@contextmanager
def changing(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold an exclusive write transaction: commit on success, roll back on any exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk may already have ended the transaction.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Convert SQLite's errors to OSError with the file's name."""
    try:
        yield
    except sqlite3.Error as error:
        raise OSError(f"{path}: {error}") from error
