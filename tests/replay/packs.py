"""Look into the packs of a recorded run, and harm them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any


def frame_ids(run: Path) -> list[str]:
    """Of all frames that are stored."""
    return [str(id) for (id,) in _ask(run, "SELECT lower(hex(id)) FROM frames")]


def count_bands(run: Path) -> int:
    """Of all frames."""
    return sum(int(count) for (count,) in _ask(run, "SELECT count(*) FROM bands"))


def stored_bytes(run: Path) -> int:
    """What all frames take."""
    asked = "SELECT sum(length(deflated) * 6 / 5) FROM bands"
    return sum(int(size or 0) for (size,) in _ask(run, asked))


def lose(run: Path, frame_id: str) -> None:
    """As where a process was killed before a frame was written."""
    _ask(run, "DELETE FROM frames WHERE id = ?", bytes.fromhex(frame_id))


def damage(run: Path) -> None:
    """All frames are broken."""
    _ask(run, "UPDATE bands SET deflated = x'62726f6b656e'")


def touch(run: Path, frame_id: str, when: float) -> None:
    """A frame was last seen then, seconds since 1970."""
    _ask(run, "UPDATE frames SET touched = ? WHERE id = ?", when, bytes.fromhex(frame_id))


def touched(run: Path, frame_id: str) -> float:
    """When a frame was last seen."""
    ((when,),) = _ask(run, "SELECT touched FROM frames WHERE id = ?", bytes.fromhex(frame_id))
    return float(when)


def age_frames(run: Path, seconds: float) -> None:
    """All frames were last seen so much earlier."""
    _ask(run, "UPDATE frames SET touched = touched - ?", seconds)


def _ask(run: Path, asked: str, *values: object) -> list[tuple[Any, ...]]:
    return [row for pack in _opened(run) for row in pack.execute(asked, values)]


def _opened(run: Path) -> Iterator[sqlite3.Connection]:
    for path in sorted((run / "frames").glob("*.sqlite")):
        with closing(sqlite3.connect(path)) as pack, pack:
            yield pack
