"""Reads levels in the text format of Boxoban (github.com/google-deepmind/boxoban-levels).

::

    ; 0
    #####
    #@$.#
    #####

A line that starts with `;` begins a level and names it; the rows that follow, up to a blank line or
the next `;`, are the level.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from agentrl.envs.sokoban.board import Board
from agentrl.envs.sokoban.board_parser import parse
from agentrl.errors import ConfigError


def read_levels(path: str) -> tuple[Board, ...]:
    """All levels of a file, or of all `.txt` files below a folder, sorted by name.

    Raises:
        ConfigError: no such file, or an unplayable level, with its file, line and column.
    """
    place = Path(path).expanduser()
    files = sorted(place.rglob("*.txt")) if place.is_dir() else [place]
    if not files:
        raise ConfigError(f"levels={path}: no .txt file in this folder")
    try:
        marks = tuple((file, file.stat().st_mtime_ns) for file in files)
        return _read(marks)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"levels={path}: cannot be read: {error}") from error


@lru_cache(maxsize=4)
def _read(marks: tuple[tuple[Path, int], ...]) -> tuple[Board, ...]:
    """Cached, because many environments of one process play the same levels."""
    return tuple(
        board
        for file, _ in marks
        for board in levels_in(file.read_text(encoding="utf-8"), str(file))
    )


def levels_in(text: str, where: str = "levels") -> list[Board]:
    """The levels of a text.

    Args:
        text: in the format above.
        where: the name of the text in errors.

    Raises:
        ConfigError: a level is malformed or already solved, or there is none.
    """
    boards = []
    for line, rows in _pieces(text.splitlines()):
        board = parse("\n".join(rows), where, line)
        if board.solved:
            raise ConfigError(f"{where}, line {line}: every box is already on a target")
        boards.append(board)
    if not boards:
        raise ConfigError(f"{where}: contains no level: rows of # and floor after a line `; 0`")
    return boards


def _pieces(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """The rows of each level, and the number of their first line."""
    rows: list[str] = []
    number = 0
    for number, line in enumerate(lines, 1):
        if line.startswith(";") or not line.strip():
            if rows:
                yield number - len(rows), rows
            rows = []
        else:
            rows.append(line.rstrip())
    if rows:
        yield number - len(rows) + 1, rows
