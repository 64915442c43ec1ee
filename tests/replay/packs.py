"""Inspect and damage the frame packs of a recorded run."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any


def frame_ids(run: Path) -> list[str]:
    """Ids of all stored frames."""
    return [str(id) for (id,) in _ask(run, "SELECT lower(hex(id)) FROM frames")]


def count_bands(run: Path) -> int:
    """Bytes of all frames."""
    return sum(int(count) for (count,) in _ask(run, "SELECT count(*) FROM bands"))


def stored_bytes(run: Path) -> int:
    """Size of the packs."""
    asked = "SELECT sum(length(deflated) * 6 / 5) FROM bands"
    return sum(int(size or 0) for (size,) in _ask(run, asked))


def lose(run: Path, frame_id: str) -> None:
    """Delete a frame, as if the process had been killed before writing it."""
    _ask(run, "DELETE FROM frames WHERE id = ?", bytes.fromhex(frame_id))


def damage(run: Path) -> None:
    """Damage all frames."""
    _ask(run, "UPDATE bands SET deflated = x'62726f6b656e'")


def touch(run: Path, frame_id: str, when: float) -> None:
    """Set when a frame was last seen, in seconds since 1970."""
    _ask(run, "UPDATE frames SET touched = ? WHERE id = ?", when, bytes.fromhex(frame_id))


def touched(run: Path, frame_id: str) -> float:
    """When a frame was last seen."""
    ((when,),) = _ask(run, "SELECT touched FROM frames WHERE id = ?", bytes.fromhex(frame_id))
    return float(when)


def age_frames(run: Path, seconds: float) -> None:
    """Shift all touch times by this many seconds."""
    _ask(run, "UPDATE frames SET touched = touched - ?", seconds)


def _ask(run: Path, asked: str, *values: object) -> list[tuple[Any, ...]]:
    return [row for pack in _opened(run) for row in pack.execute(asked, values)]


def _opened(run: Path) -> Iterator[sqlite3.Connection]:
    for path in sorted((run / "frames").glob("*.sqlite")):
        with closing(sqlite3.connect(path)) as pack, pack:
            yield pack
