"""Scripted players of Sokoban: they know the board and answer as a model would."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from agentrl.data.calls import Calls
from agentrl.envs.sokoban.board import MOVES, Board
from agentrl.envs.sokoban.deadlock import is_deadlocked
from agentrl.envs.sokoban.parsing import parse
from agentrl.envs.sokoban.room import bits
from agentrl.envs.sokoban.solver import OutOfReach, solve

_STATES = 100_000
_KEPT = 100_000


class Expert:
    """Follows a shortest solution; moves at random where there is none, or none is found.

    Args:
        style: of actions, `tag` or `tool`.
    """

    def __init__(self, style: str = "tag") -> None:
        self._calls = Calls(MOVES, style)

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """The reply to the board that stands in `info`."""
        return self._calls.say(MOVES[self.choose(info, rng)])

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> int:
        """The index of the move."""
        found = _best(info["board"])
        return _any(rng) if found is None else found


class Mediocre(Expert):
    """Follows a shortest solution now and then; mostly it runs straight at the box and pushes on.

    It goes to the nearest box that is on no target, rows before columns where both are as far, and
    pushes it wherever that leads. A model that copies it has a habit to leave behind, not only
    chance: its most frequent move is wrong wherever one has to walk around the box.

    Args:
        skill: the chance of a move by the solution, in [0, 1].
        style: of actions, `tag` or `tool`.
    """

    def __init__(self, skill: float = 0.4, style: str = "tag") -> None:
        super().__init__(style)
        self.skill = skill

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> int:
        """The index of the move."""
        if rng.random() < self.skill:
            return super().choose(info, rng)
        return _straight(parse(info["board"]))


class Random(Expert):
    """Moves at random."""

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> int:
        """The index of the move."""
        return _any(rng)


def _straight(board: Board) -> int:
    """The move that goes straight to the nearest box."""
    width = board.room.width
    row, column = divmod(board.player, width)
    boxes = board.boxes & ~board.room.targets or board.boxes
    ways = [(cell // width - row, cell % width - column) for cell in bits(boxes)]
    down, right = min(ways, key=lambda way: abs(way[0]) + abs(way[1]))
    if abs(down) >= abs(right):
        return MOVES.index("down" if down > 0 else "up")
    return MOVES.index("right" if right > 0 else "left")


def _any(rng: np.random.Generator) -> int:
    return int(rng.integers(len(MOVES)))


_known: dict[str, int] = {}
"""The next move on boards of solutions that were found: solved once, not at every turn."""


def _best(text: str) -> int | None:
    """The first move of a shortest solution; None where there is none, or none is found."""
    if text not in _known:
        if len(_known) > _KEPT:
            _known.clear()
        return _solved(text)
    return _known[text]


@lru_cache(maxsize=4096)
def _solved(text: str) -> int | None:
    board = parse(text)
    if is_deadlocked(board):
        return None
    try:
        moves = solve(board, _STATES)
    except OutOfReach:
        return None
    _remember(board, moves or ())
    return moves[0] if moves else None


def _remember(board: Board, moves: tuple[int, ...]) -> None:
    for move in moves:
        _known[board.text()] = move
        board = board.move(move)
