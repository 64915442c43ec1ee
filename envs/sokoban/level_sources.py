"""Sources of levels: generated from a seed, or read from files."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from agentrl.envs.sokoban.board import Board
from agentrl.envs.sokoban.board_parser import parse
from agentrl.envs.sokoban.level_generator import LevelKind, SokobanLevel, generate
from agentrl.envs.sokoban.level_split import belongs, check_split
from agentrl.envs.sokoban.solver import SearchLimitReached, solve
from agentrl.errors import ConfigError


class LevelSource(Protocol):
    """Provides a level for every seed."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of every level."""

    def draw(self, seed: int) -> SokobanLevel:
        """Return the level of a seed; the same seed always gives the same level."""


@dataclass(slots=True, kw_only=True, frozen=True)
class GeneratedLevels:
    """Levels from the generator."""

    kind: LevelKind

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of every level."""
        return self.kind.height, self.kind.width

    def draw(self, seed: int) -> SokobanLevel:
        """Return the level of a seed."""
        return generate(seed, self.kind)


@dataclass(slots=True, kw_only=True)
class FileLevels:
    """Levels from files, padded with walls to a common size.

    Seed s selects level s modulo the number of levels.
    """

    boards: Sequence[Board]
    states: int
    """Search limit for a shortest solution, in solver states."""
    size: tuple[int, int]
    _solved: dict[int, int | None] = field(default_factory=dict)

    def draw(self, seed: int) -> SokobanLevel:
        """Return the level of a seed."""
        number = seed % len(self.boards)
        board = self.boards[number]
        if number not in self._solved:
            self._solved[number] = _optimal(board, self.states)
        return SokobanLevel(
            board=_filled(board, *self.size), optimal=self._solved[number], number=number
        )


def open_source(
    *,
    size: int | Sequence[int] | None,
    boxes: int | None,
    min_moves: int | None,
    max_moves: int | None,
    split: str,
    held_out: float,
    held_out_by: str,
    levels: str | None,
    states: int,
) -> LevelSource:
    """Open the levels that an environment plays; see `Sokoban` for the arguments.

    Raises:
        ConfigError: no levels match the arguments.
    """
    asked = {"boxes": boxes, "min_moves": min_moves, "max_moves": max_moves}
    if levels is not None:
        _refuse(levels, size=size, **asked)
        check_split(split, held_out, held_out_by)
        boards = [b for b in read_levels(levels) if belongs(b, split, held_out, held_out_by)]
        if not boards:
            raise ConfigError(f"levels={levels}: no level in these files belongs to split={split}")
        height, width = (max(getattr(b.room, side) for b in boards) for side in ("height", "width"))
        return FileLevels(boards=boards, states=states, size=(height, width))
    wanted = {name: value for name, value in asked.items() if value is not None}
    kind = LevelKind(
        **_sides(size), **wanted, split=split, held_out=held_out, held_out_by=held_out_by
    )
    _try(kind)
    return GeneratedLevels(kind=kind)


def _refuse(levels: str, **asked: object) -> None:
    """Reject arguments for generated levels when levels come from a file."""
    given = [name for name, value in asked.items() if value is not None]
    if given:
        names, unset = ", ".join(given), ", ".join(f"{name}=null" for name in given)
        raise ConfigError(
            f"{names}: can only be set for generated levels, but levels={levels} reads a file; "
            f"remove {names} or set {unset}."
        )


def _sides(size: int | Sequence[int] | None) -> dict[str, int]:
    """Return height and width, if they are set."""
    if size is None:
        return {}
    sides = [size, size] if isinstance(size, int) else list(size)
    if len(sides) != 2 or not all(isinstance(side, int) for side in sides):
        raise ConfigError(f"size is {size}; it must be one number, or [height, width].")
    return {"height": sides[0], "width": sides[1]}


@lru_cache(maxsize=64)
def _try(kind: LevelKind) -> None:
    """Generate one level, so that an impossible kind fails before any episode runs."""
    generate(0, kind)


def _optimal(board: Board, states: int) -> int | None:
    try:
        moves = solve(board, states)
    except SearchLimitReached:
        return None
    return None if moves is None else len(moves)


def _filled(board: Board, height: int, width: int) -> Board:
    """Pad the level with walls on the right and below."""
    if (board.room.height, board.room.width) == (height, width):
        return board
    rows = [row.ljust(width, "#") for row in board.text().split("\n")]
    return parse("\n".join([*rows, *["#" * width] * (height - len(rows))]))


def read_levels(path: str) -> tuple[Board, ...]:
    """Read all levels of a file, or of all `.txt` files below a folder, sorted by name.

    Raises:
        ConfigError: the file does not exist, or a level is unplayable; the message gives file,
            line and column.
    """
    place = Path(path).expanduser()
    files = sorted(place.rglob("*.txt")) if place.is_dir() else [place]
    if not files:
        raise ConfigError(f"levels={path}: this folder contains no .txt file")
    try:
        marks = tuple((file, file.stat().st_mtime_ns) for file in files)
        return _read(marks)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"levels={path}: cannot be read: {error}") from error


@lru_cache(maxsize=4)
def _read(marks: tuple[tuple[Path, int], ...]) -> tuple[Board, ...]:
    """Read levels, cached because many environments of a process play the same levels."""
    return tuple(
        board
        for file, _ in marks
        for board in levels_in(file.read_text(encoding="utf-8"), str(file))
    )


def levels_in(text: str, where: str = "levels") -> list[Board]:
    """Parse levels in Boxoban's format.

    A line that starts with `;` begins a level and names it; the rows that follow, up to a blank
    line or the next `;`, are the level. See https://github.com/google-deepmind/boxoban-levels. ::

        ; 0
        #####
        #@$.#
        #####

    Args:
        text: levels in this format.
        where: name of the source for error messages.

    Raises:
        ConfigError: a level is malformed or already solved, or the text has no level.
    """
    boards = []
    for line, rows in _pieces(text.splitlines()):
        board = parse("\n".join(rows), where, line)
        if board.solved:
            raise ConfigError(f"{where}, line {line}: every box is already on a target")
        boards.append(board)
    if not boards:
        raise ConfigError(
            f"{where}: contains no level; write rows of # and floor after a line such as `; 0`"
        )
    return boards


def _pieces(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of each level and the number of its first line."""
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
