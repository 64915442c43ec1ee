"""Who plays 2048 well: it looks at each move and at each tile that may come after it."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agentrl.envs.minigames.game_2048.rules import Board, Row, empty, legal, put, slide

_MOST_CELLS = 6
"""Cells in which a new tile is tried; on an empty board it hardly matters where it comes."""
_EMPTY = 2.7
"""What an empty cell is worth beside what lies in the corner."""
_LOST = -1e6


def best(state: Mapping[str, Any]) -> str:
    """The move whose board is worth most, on average over the tiles that may come."""
    board: Board = tuple(map(tuple, state["board"]))
    moves: list[str] = state["moves"]
    return max(moves, key=lambda name: _expected(slide(board, name)[0]))


def _expected(board: Board) -> float:
    """The worth of a board before a tile comes."""
    cells = empty(board)
    tried = cells[:: -(-len(cells) // _MOST_CELLS)]
    worth = 0.0
    for cell in tried:
        for tile, share in ((2, 0.9), (4, 0.1)):
            worth += share * _best_worth(put(board, cell, tile))
    return worth / len(tried)


def _best_worth(board: Board) -> float:
    moves = legal(board)
    return max((_worth(slide(board, name)[0]) for name in moves), default=_LOST)


def _worth(board: Board) -> float:
    """How well the tiles fall from a corner along the rows, to and fro, and how much is empty."""
    columns: Board = tuple(zip(*board, strict=True))
    ways = (board, board[::-1], columns, columns[::-1])
    falls = max(max(_fall(way, 0), _fall(way, 1)) for way in ways)
    return falls + _EMPTY * len(empty(board)) * math.sqrt(max(map(max, board)))


def _fall(board: Board, turned: int) -> float:
    """The tiles, each worth half of the one before it, along a snake that begins in a corner."""
    return sum(_row_fall(row, (y + turned) % 2) * 0.0625**y for y, row in enumerate(board))


@lru_cache(maxsize=65536)
def _row_fall(row: Row, turned: int) -> float:
    line = row[::-1] if turned else row
    return sum(tile * 0.5**x for x, tile in enumerate(line))
