"""Scripted players of Sokoban: they know the board and answer as a model would.

Their thought reads the board before it decides: row and column of the player, of the box that is
pushed next and of its target, each from 0 with the walls counted, then the way it will be pushed.
Each word follows from few others, so that a small model learns to think it, and can say on boards
that it never saw where things are.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from agentrl.actions.tool_calls import Calls
from agentrl.envs.sokoban.board import MOVES, Board
from agentrl.envs.sokoban.deadlock import is_deadlocked
from agentrl.envs.sokoban.parsing import parse
from agentrl.envs.sokoban.room import bits
from agentrl.envs.sokoban.solver import OutOfReach, solve

_STATES = 100_000
_KEPT = 100_000


class Plan(NamedTuple):
    """What a player is about to do."""

    box: int
    """The cell of the box that it pushes next."""
    target: int
    """The cell where that box is to go."""
    push: int
    """Index of `MOVES`: the way it will be pushed."""
    move: int
    """Index of `MOVES`: what comes first."""


class Expert:
    """Follows a shortest solution; goes straight at a box where there is none, or none is found.

    Args:
        style: of actions, `tag` or `tool`.
        think: whether it says its thought before its action.
    """

    def __init__(self, style: str = "tag", think: bool = True) -> None:
        self._calls = Calls(MOVES, style)
        self._think = think

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """The reply to the board that stands in `info`."""
        plan = self.plan(info["board"], rng)
        thought = _thought(parse(info["board"]), plan) if self._think else ""
        return thought + self._calls.say(MOVES[plan.move])

    def plan(self, text: str, rng: np.random.Generator) -> Plan:
        """What to do on a board."""
        return best(text) or straight(parse(text))


class Mediocre(Expert):
    """Follows a shortest solution, but in some turns it runs straight at the box and pushes on.

    It goes to the nearest box that is on no target, rows before columns where both are as far, and
    pushes it wherever that leads, often into a corner. A model that copies it has a habit to leave
    behind, not only chance.

    Args:
        skill: the chance of a move by the solution, in [0, 1].
        style: of actions, `tag` or `tool`.
        think: whether it says its thought before its action.
    """

    def __init__(self, skill: float = 0.7, style: str = "tag", think: bool = True) -> None:
        super().__init__(style, think)
        self.skill = skill

    def plan(self, text: str, rng: np.random.Generator) -> Plan:
        """What to do on a board."""
        return super().plan(text, rng) if rng.random() < self.skill else straight(parse(text))


class Random(Expert):
    """Moves at random and thinks nothing."""

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """A reply that looks at nothing."""
        return self._calls.say(MOVES[rng.integers(len(MOVES))])


def best(text: str) -> Plan | None:
    """The beginning of a shortest solution; None where there is none, or none is found."""
    moves, board = _solution(text), parse(text)
    box = target = push = None
    for move in moves:
        after = board.move(move)
        if after.boxes != board.boxes:
            if box is None:
                box, push, target = after.player, move, after.player
            if after.player == target:  # the same box, one cell on
                target += board.room.steps[move]
        board = after
    if box is None or target is None or push is None:
        return None
    return Plan(box=box, target=target, push=push, move=moves[0])


def straight(board: Board) -> Plan:
    """Straight to the nearest box that is on no target, and on."""
    width = board.room.width
    box = _nearest(board.player, board.boxes & ~board.room.targets or board.boxes, width)
    target = _nearest(box, board.room.targets & ~board.boxes or board.room.targets, width)
    down, right = box // width - board.player // width, box % width - board.player % width
    if abs(down) >= abs(right):
        move = MOVES.index("down" if down > 0 else "up")
    else:
        move = MOVES.index("right" if right > 0 else "left")
    return Plan(box=box, target=target, push=move, move=move)


def _nearest(cell: int, cells: int, width: int) -> int:
    """The cell of a set that is the fewest rows and columns away."""
    row, column = divmod(cell, width)
    return min(bits(cells), key=lambda c: abs(c // width - row) + abs(c % width - column))


def _thought(board: Board, plan: Plan) -> str:
    cells = (board.player, plan.box, plan.target)
    places = [str(number) for cell in cells for number in divmod(cell, board.room.width)]
    return f"<think>{' '.join(places)} {MOVES[plan.push]}</think>"


_known: dict[str, tuple[int, ...]] = {}
"""What is left of solutions that were found, by board: solved once, not at every turn."""


def _solution(text: str) -> tuple[int, ...]:
    """A shortest solution; no moves where there is none, none is found, or none is needed."""
    if (moves := _known.get(text)) is not None:
        return moves
    board = parse(text)
    try:
        moves = () if is_deadlocked(board) else solve(board, _STATES) or ()
    except OutOfReach:
        moves = ()
    if len(_known) > _KEPT:
        _known.clear()
    _known[text] = moves
    for done, move in enumerate(moves):
        _known[board.text()] = moves[done:]
        board = board.move(move)
    return moves
