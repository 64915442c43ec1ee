"""Scripted players of Sokoban: they see the board and reply in a model's format.

Their reasoning reads the board before it decides: row and column of the player, of the box to push
next and of its target, counted from 0 including walls, then the direction of the push. Each word
follows from a few others, so that a small model can learn it and locate things on unseen boards.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from agentrl.actions.action_calls import ActionSet
from agentrl.actions.action_chunks import join_actions
from agentrl.envs.sokoban.board import MOVES, Board
from agentrl.envs.sokoban.board_parser import parse
from agentrl.envs.sokoban.room import bits
from agentrl.envs.sokoban.solver import SearchLimitReached, is_deadlocked, solve

_STATES = 100_000
_KEPT = 100_000


class Plan(NamedTuple):
    """The next push of a player, and its next move."""

    box: int
    """The cell of the box to push next."""
    target: int
    """The cell that the box should reach."""
    push: int
    """The direction of the push, index into `MOVES`."""
    moves: tuple[int, ...]
    """The moves up to and including the push, at least one, as indices into `MOVES`."""


class SokobanExpert:
    """Follows a shortest solution; without one, it goes straight for the nearest box.

    Args:
        style: how actions are written: `tag` or `tool`.
        think: whether it writes its reasoning before the action.
        max_actions_per_reply: a reply has the moves up to the next push, but not more than this.
            Filled in automatically.
    """

    def __init__(
        self, style: str = "tag", think: bool = True, max_actions_per_reply: int = 1
    ) -> None:
        self._calls = ActionSet(MOVES, style)
        self._think, self._most = think, max_actions_per_reply

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return the reply to the board in `info`."""
        plan = self.plan(info["board"], rng)
        thought = _thought(parse(info["board"]), plan) if self._think else ""
        return thought + self._written(plan.moves[: self._most])

    def plan(self, text: str, rng: np.random.Generator) -> Plan:
        """Return the plan for a board."""
        return best(text) or straight(parse(text))

    def _written(self, moves: Iterable[int]) -> str:
        return join_actions(self._calls.format(MOVES[move]) for move in moves)


class SokobanMediocre(SokobanExpert):
    """Follows a shortest solution, but in some turns goes straight for the nearest box and pushes.

    It approaches the nearest box that is not on a target, along the longer axis first, and pushes
    it regardless of the result, often into a corner. A model that imitates it has a bad habit to
    unlearn, not just noise.

    Args:
        skill: the probability of following the solution, in [0, 1].
        style: how actions are written: `tag` or `tool`.
        think: whether it writes its reasoning before the action.
        max_actions_per_reply: as in `SokobanExpert`; going straight is always one move.
    """

    def __init__(
        self,
        skill: float = 0.7,
        style: str = "tag",
        think: bool = True,
        max_actions_per_reply: int = 1,
    ) -> None:
        super().__init__(style, think, max_actions_per_reply)
        self.skill = skill

    def plan(self, text: str, rng: np.random.Generator) -> Plan:
        """Return the plan for a board."""
        return super().plan(text, rng) if rng.random() < self.skill else straight(parse(text))


class SokobanRandom(SokobanExpert):
    """Makes random moves, as many per reply as there may be; no reasoning."""

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return random moves."""
        return self._written(rng.integers(len(MOVES), size=self._most))


def best(text: str) -> Plan | None:
    """Return the plan of a shortest solution; None if none exists or was found."""
    moves, board = solution(text), parse(text)
    box = target = push = until = None
    for number, move in enumerate(moves, 1):
        after = board.move(move)
        if after.boxes != board.boxes:
            if box is None:
                box, push, target, until = after.player, move, after.player, number
            if after.player == target:  # the same box, pushed one cell further
                target += board.room.steps[move]
        board = after
    if box is None or target is None or push is None:
        return None
    return Plan(box=box, target=target, push=push, moves=moves[:until])


def straight(board: Board) -> Plan:
    """Return the plan to walk straight to the nearest box off a target and push it."""
    width = board.room.width
    box = _nearest(board.player, board.boxes & ~board.room.targets or board.boxes, width)
    target = _nearest(box, board.room.targets & ~board.boxes or board.room.targets, width)
    down, right = box // width - board.player // width, box % width - board.player % width
    if abs(down) >= abs(right):
        move = MOVES.index("down" if down > 0 else "up")
    else:
        move = MOVES.index("right" if right > 0 else "left")
    return Plan(box=box, target=target, push=move, moves=(move,))


def _nearest(cell: int, cells: int, width: int) -> int:
    """Return the nearest cell of a set, by Manhattan distance."""
    row, column = divmod(cell, width)
    return min(bits(cells), key=lambda c: abs(c // width - row) + abs(c % width - column))


def _thought(board: Board, plan: Plan) -> str:
    cells = (board.player, plan.box, plan.target)
    numbers = [str(number) for cell in cells for number in divmod(cell, board.room.width)]
    return f"<think>{' '.join(numbers)} {MOVES[plan.push]}</think>"


_known: dict[str, tuple[int, ...]] = {}
"""Maps boards to the remaining moves of known solutions, so that each level is solved once."""


def solution(text: str) -> tuple[int, ...]:
    """Return a shortest solution; empty if the level is solved or no solution was found."""
    if (moves := _known.get(text)) is not None:
        return moves
    board = parse(text)
    try:
        moves = () if is_deadlocked(board) else solve(board, _STATES) or ()
    except SearchLimitReached:
        moves = ()
    if len(_known) > _KEPT:
        _known.clear()
    _known[text] = moves
    for done, move in enumerate(moves):
        _known[board.text()] = moves[done:]
        board = board.move(move)
    return moves
