"""Scripted players of 2048: they know the truth and answer as a model would."""

import itertools
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agentrl.envs.minigames.game_2048.phone import GAME
from agentrl.envs.minigames.game_2048.rules import Board, Row, empty, legal, put, slide
from agentrl.envs.minigames.players import Skilled
from agentrl.envs.phone_game.players import RandomPlayer

_MOST_CELLS = 6
"""Cells in which a new tile is tried; on an empty board it hardly matters where it comes."""
_LOST = -1_600_000.0


class Expert(Skilled):
    """Looks at each move and at each tile that may come after it."""

    game = GAME

    def best(self, info: Mapping[str, Any]) -> str:
        """The move whose board is worth most, on average over the tiles that may come."""
        board: Board = tuple(map(tuple, info["board"]))
        moves: list[str] = info["moves"]
        return max(moves, key=lambda name: _expected(slide(board, name)[0]))


class Mediocre(Expert):
    """Makes any call in half of its turns."""

    usual_skill = 0.5


class Random(RandomPlayer):
    """Makes any call, and touches anywhere now and then."""

    game = GAME


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
    """How good all rows and columns are."""
    return sum(map(_line_worth, (*board, *zip(*board, strict=True))))


@lru_cache(maxsize=65536)
def _line_worth(line: Row) -> float:
    """Empty cells and neighbours that can merge are good, tiles that rise and fall are not.

    The features and their weights are those that nneonneo found for his player of 2048
    (https://stackoverflow.com/a/22498940).
    """
    ranks = [tile.bit_length() - 1 if tile else 0 for tile in line]
    pairs = list(itertools.pairwise(ranks))
    merges = sum(one == next != 0 for one, next in pairs)
    rises = sum(float(next**4 - one**4) for one, next in pairs if next > one)
    falls = sum(float(one**4 - next**4) for one, next in pairs if one > next)
    tiles = sum(float(rank**3.5) for rank in ranks)
    return 270 * line.count(0) + 700 * merges - 47 * min(rises, falls) - 11 * tiles
