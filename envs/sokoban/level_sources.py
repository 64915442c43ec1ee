"""Sources of levels: generated from a seed, or read from files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from agentrl.envs.sokoban.board import Board
from agentrl.envs.sokoban.board_parser import parse
from agentrl.envs.sokoban.level_files import read_levels
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
        """The level of a seed, deterministic."""


@dataclass(slots=True, kw_only=True, frozen=True)
class GeneratedLevels:
    """Levels from the generator."""

    kind: LevelKind

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of every level."""
        return self.kind.height, self.kind.width

    def draw(self, seed: int) -> SokobanLevel:
        """The level of a seed."""
        return generate(seed, self.kind)


@dataclass(slots=True, kw_only=True)
class FileLevels:
    """Levels from files, padded with walls to a common size; the seed counts through them."""

    boards: Sequence[Board]
    states: int
    """Search limit for a shortest solution."""
    size: tuple[int, int]
    _solved: dict[int, int | None] = field(default_factory=dict)

    def draw(self, seed: int) -> SokobanLevel:
        """The level of a seed."""
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
    """The levels that an environment plays; see `Sokoban` for the arguments.

    Raises:
        ConfigError: there are no such levels.
    """
    asked = {"boxes": boxes, "min_moves": min_moves, "max_moves": max_moves}
    if levels is not None:
        _refuse(levels, size=size, **asked)
        check_split(split, held_out, held_out_by)
        boards = [b for b in read_levels(levels) if belongs(b, split, held_out, held_out_by)]
        if not boards:
            raise ConfigError(f"levels={levels}: none of its levels belongs to split={split}")
        height, width = (max(getattr(b.room, side) for b in boards) for side in ("height", "width"))
        return FileLevels(boards=boards, states=states, size=(height, width))
    wanted = {name: value for name, value in asked.items() if value is not None}
    kind = LevelKind(
        **_sides(size), **wanted, split=split, held_out=held_out, held_out_by=held_out_by
    )
    _try(kind)
    return GeneratedLevels(kind=kind)


def _refuse(levels: str, **asked: object) -> None:
    """Reject arguments for generated levels when levels come from a file.

    Raises:
        ConfigError: one of them is set.
    """
    given = [name for name, value in asked.items() if value is not None]
    if given:
        unset = ", ".join(f"{name}=null" for name in given)
        raise ConfigError(
            f"{', '.join(given)}: only for generated levels, but levels={levels} reads a file; "
            f"remove them or set {unset}."
        )


def _sides(size: int | Sequence[int] | None) -> dict[str, int]:
    """Height and width, if they are set.

    Raises:
        ConfigError: `size` is not one or two numbers.
    """
    if size is None:
        return {}
    sides = [size, size] if isinstance(size, int) else list(size)
    if len(sides) != 2 or not all(isinstance(side, int) for side in sides):
        raise ConfigError(f"size is {size}; it must be one number, or [height, width].")
    return {"height": sides[0], "width": sides[1]}


@lru_cache(maxsize=64)
def _try(kind: LevelKind) -> None:
    """Generate one level, so that a kind without levels fails before any episode runs.

    Raises:
        ConfigError: no level of this kind was found.
    """
    generate(0, kind)


def _optimal(board: Board, states: int) -> int | None:
    try:
        moves = solve(board, states)
    except SearchLimitReached:
        return None
    return None if moves is None else len(moves)


def _filled(board: Board, height: int, width: int) -> Board:
    """The same level, padded with walls on the right and below."""
    if (board.room.height, board.room.width) == (height, width):
        return board
    rows = [row.ljust(width, "#") for row in board.text().split("\n")]
    return parse("\n".join([*rows, *["#" * width] * (height - len(rows))]))
