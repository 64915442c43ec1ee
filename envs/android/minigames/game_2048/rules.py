"""2048: a pure, seeded state machine.

A move slides all tiles of a 4x4 board to one side. Two equal tiles that meet merge into their sum,
at most once per move, and the sum is added to the score. A move that slides nothing does not count.
After each move a 2 (nine times out of ten) or a 4 appears in an empty cell; the draw depends on the
seed, the number of moves so far and the empty cells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agentrl.envs.android.minigames.minigame_rules import (
    SWIPES,
    MinigameRules,
    direction,
    event_rng,
)
from agentrl.envs.android.phone_game.boxes import Grid
from agentrl.envs.android.phone_game.level_settings import LevelSettings, one_of
from agentrl.envs.android.phone_game.rules import TouchTarget

SIDE = 4
MOVES = tuple(SWIPES)
GRID = Grid(columns=SIDE, rows=SIDE + 3)
"""Two rows for the score board, then the board, then one free row."""
TOP = 2
"""The board's first row."""
_FOUR = 0.1

Row = tuple[int, ...]
Board = tuple[Row, ...]
"""Rows from the top, each from the left; 0 for an empty cell."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Game2048Level(LevelSettings):
    """The length of a game."""

    goal: int = one_of(
        2048, [2**n for n in range(3, 17)], "a power of 2 from 8 to 65536 (the tile that wins)"
    )


class Game2048(MinigameRules):
    """One game. For args and errors see `MinigameRules`; settings: `Game2048Level`."""

    def __init__(self, seed: int = 0, **level: Any) -> None:
        self.seed, self.goal = seed, Game2048Level(**level).goal
        self.score = self.merits = self.num_moves = 0
        self.board: Board = ((0,) * SIDE,) * SIDE
        self._spawn(0)
        self._spawn(1)

    def swipe(self, x1: float, y1: float, x2: float, y2: float) -> bool:
        """Slide the tiles in the direction of the swipe."""
        return self.move(direction(x1, y1, x2, y2))

    def touch_targets(self) -> Mapping[str, TouchTarget]:
        """Return the four swipes."""
        return SWIPES

    def move(self, name: str) -> bool:
        """Slide the tiles `up`, `down`, `left` or `right`. Returns False if none would move."""
        if self.done:
            return False
        board, merged = slide(self.board, name)
        if board == self.board:
            return False
        self.board = board
        self.score += sum(merged)
        self.merits += sum(tile.bit_length() - 1 for tile in merged)
        self.num_moves += 1
        self._spawn(self.num_moves + 1)
        return True

    def moves(self) -> tuple[str, ...]:
        """Return the legal moves."""
        return () if self.won else legal(self.board)

    @property
    def won(self) -> bool:
        """Whether the goal tile is on the board."""
        return max(map(max, self.board)) >= self.goal

    @property
    def lost(self) -> bool:
        """Whether no move is legal."""
        return not self.won and not legal(self.board)

    def state(self) -> dict[str, Any]:
        """Return the true state as plain JSON values.

        `worth` adds log2(tile) / 11 for each merged tile, and -1 for a lost game.
        """
        return {
            **super().state(),
            "num_moves": self.num_moves,
            "score": self.score,
            "worth": self.merits / 11 - self.lost,
            "board": [list(row) for row in self.board],
            "largest": max(map(max, self.board)),
        }

    def _spawn(self, event: int) -> None:
        rng = event_rng(self.seed, event)
        cells = empty(self.board)
        cell = cells[int(rng.integers(len(cells)))]
        self.board = put(self.board, cell, 4 if rng.random() < _FOUR else 2)


def slide(board: Board, name: str) -> tuple[Board, tuple[int, ...]]:
    """Return the board after a move, before a new tile appears, and the merged tiles.

    Raises:
        ValueError: unknown move.
    """
    if name not in MOVES:
        raise ValueError(f"{name!r} is not a move; it must be one of {', '.join(MOVES)}.")
    lines = tuple(zip(*board, strict=True)) if name in ("up", "down") else board
    step = -1 if name in ("down", "right") else 1
    slid = [_merge(line[::step]) for line in lines]
    new = tuple(line[::step] for line, _ in slid)
    if name in ("up", "down"):
        new = tuple(zip(*new, strict=True))
    return new, tuple(tile for _, merged in slid for tile in merged)


def legal(board: Board) -> tuple[str, ...]:
    """Return the legal moves."""
    return tuple(name for name in MOVES if slide(board, name)[0] != board)


def empty(board: Board) -> list[tuple[int, int]]:
    """Return the row and column of each empty cell, in reading order."""
    return [(y, x) for y, row in enumerate(board) for x, tile in enumerate(row) if not tile]


def put(board: Sequence[Sequence[int]], cell: tuple[int, int], tile: int) -> Board:
    """Return the board with a tile put into a cell."""
    return tuple(
        tuple(tile if (y, x) == cell else old for x, old in enumerate(row))
        for y, row in enumerate(board)
    )


@lru_cache(maxsize=65536)
def _merge(line: Row) -> tuple[Row, Row]:
    """Slide a line towards its start; return it and the merged tiles."""
    tiles = [tile for tile in line if tile]
    left: list[int] = []
    merged: list[int] = []
    at = 0
    while at < len(tiles):
        tile = tiles[at]
        if at + 1 < len(tiles) and tiles[at + 1] == tile:
            tile, at = 2 * tile, at + 1
            merged.append(tile)
        left.append(tile)
        at += 1
    return (*left, *(0,) * (len(line) - len(left))), tuple(merged)
