"""Scripted players of 2048: they see the true state and reply in a model's format."""

import itertools
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agentrl.envs.android.minigames.game_2048.env import GAME
from agentrl.envs.android.minigames.game_2048.rules import Board, Row, empty, legal, put, slide
from agentrl.envs.android.phone_game.players import RandomGamePlayer, SkilledPlayer

_MOST_CELLS = 6
"""Number of empty cells to try for a new tile; with more, its position hardly matters."""
_LOST = -1_600_000.0


class Game2048Expert(SkilledPlayer):
    """Evaluates each move, averaged over the tiles that may appear after it."""

    game = GAME

    def best(self, info: Mapping[str, Any]) -> str:
        """Return the move with the highest expected value over the tiles that may appear."""
        board: Board = tuple(map(tuple, info["board"]))
        moves: list[str] = info["moves"]
        return max(moves, key=lambda name: _expected(slide(board, name)[0]))


class Game2048Mediocre(Game2048Expert):
    """Makes a random call in half of its turns."""

    default_skill = 0.5


class Game2048Random(RandomGamePlayer):
    """Makes random calls, and sometimes touches anywhere."""

    game = GAME


def _expected(board: Board) -> float:
    """Return the expected value of a board before the new tile appears."""
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
    """Return the heuristic value of a board: the sum over its rows and columns."""
    return sum(map(_line_worth, (*board, *zip(*board, strict=True))))


@lru_cache(maxsize=65536)
def _line_worth(line: Row) -> float:
    """Return a row's or column's heuristic value: empty cells, merges and monotonic tiles are good.

    Features and weights come from nneonneo's 2048 AI (https://stackoverflow.com/a/22498940).
    """
    ranks = [tile.bit_length() - 1 if tile else 0 for tile in line]
    pairs = list(itertools.pairwise(ranks))
    merges = sum(a == b != 0 for a, b in pairs)
    rises = sum(float(b**4 - a**4) for a, b in pairs if b > a)
    falls = sum(float(a**4 - b**4) for a, b in pairs if a > b)
    tiles = sum(float(rank**3.5) for rank in ranks)
    return 270 * line.count(0) + 700 * merges - 47 * min(rises, falls) - 11 * tiles
