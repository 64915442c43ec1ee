"""Timberman: a pure, seeded state machine.

A man stands on one side of a tree. A chop on a side moves him there and removes the lowest piece of
the trunk; everything above comes down by one. A branch on his side at his height, before or after
the chop, ends the game, and the chop does not count. The remaining time is a bar: each tick takes
one unit, each chop adds two, up to the bar's length, and the game is also lost when it is empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl.envs.android.minigames.minigame_rules import MinigameRules, event_rng
from agentrl.envs.android.phone_game.boxes import Box, Grid
from agentrl.envs.android.phone_game.level_settings import PacedSettings, one_of
from agentrl.envs.android.phone_game.rules import TouchTarget

MOVES = ("left", "right")
GRID = Grid(columns=3, rows=5)
"""One row for the score board, then the tree between the two sides."""
SHOWN = 4
"""Visible pieces of the trunk, including the one at the man's height."""
BAR = 24
_REFILL = 2
_BARE = 0.25
"""Probability that a piece has no branch where one is allowed."""


_SIDES = {
    "left": Box(0.0, GRID.cell(0, 1, margin=0).top, 0.5, 1.0),
    "right": Box(0.5, GRID.cell(0, 1, margin=0).top, 1.0, 1.0),
}


@dataclass(slots=True, kw_only=True, frozen=True)
class TimbermanLevel(PacedSettings):
    """The length and pace of a game."""

    goal: int = one_of(30, range(1, 1001), "an integer from 1 to 1000 (chops needed to win)")
    ticks: int = one_of(1, range(1, 1001), "an integer from 1 to 1000 (ticks per action)")


class Timberman(MinigameRules):
    """One game. For args and errors see `MinigameRules`; settings: `TimbermanLevel`."""

    pace_ms = 250

    def __init__(self, seed: int = 0, **level: Any) -> None:
        self.seed, self.goal = seed, TimbermanLevel(**level).goal
        self.score = 0
        self.side = "left"
        self.time_left = BAR
        self.hit = False
        self._pieces = grow(seed, self.goal + SHOWN)
        self._cut = 0

    def touch(self, x: float, y: float) -> bool:
        """Chop on the touched side."""
        return any(box.contains(x, y) and self.move(side) for side, box in _SIDES.items())

    def touch_targets(self) -> Mapping[str, TouchTarget]:
        """Return the two halves of the screen."""
        return _SIDES

    def move(self, name: str) -> bool:
        """Chop on the side `left` or `right`.

        Raises:
            ValueError: unknown side.
        """
        if name not in MOVES:
            raise ValueError(f"{name!r} is not a move; it must be one of {', '.join(MOVES)}.")
        if self.done:
            return False
        self.side = name
        self.hit = self.pieces[0] == name
        if not self.hit:
            self._cut += 1
            self.hit = self.pieces[0] == name
        if not self.hit:
            self.score += 1
            self.time_left = min(self.time_left + _REFILL, BAR)
        return True

    def tick(self) -> bool:
        """Advance by one tick."""
        if self.done:
            return False
        self.time_left -= 1
        return True

    def moves(self) -> tuple[str, ...]:
        """Return both sides until the game is over, then none."""
        return () if self.done else MOVES

    @property
    def pieces(self) -> tuple[str, ...]:
        """The visible pieces from the man's height up: `left`, `right`, or '' for no branch."""
        return self._pieces[self._cut : self._cut + SHOWN]

    @property
    def lost(self) -> bool:
        """Whether a branch has hit the man or the time is up."""
        return self.hit or self.time_left <= 0

    @property
    def won(self) -> bool:
        """Whether the goal is reached."""
        return self.score >= self.goal and not self.lost

    def state(self) -> dict[str, Any]:
        """Return the true state as plain JSON values; `worth` is the score, less 1 if lost."""
        return {
            **super().state(),
            "score": self.score,
            "worth": self.score - self.lost,
            "side": self.side,
            "pieces": list(self.pieces),
            "time_left": self.time_left,
        }


def grow(seed: int, height: int) -> tuple[str, ...]:
    """Grow a tree's branches from the ground up; a shorter tree is a prefix of a taller one.

    The first two pieces are bare, and a bare piece separates branches on opposite sides, so there
    is always a safe side.
    """
    pieces = ["", ""]
    for level in range(2, height):
        rng = event_rng(seed, level)
        branch = MOVES[int(rng.integers(2))]
        bare = rng.random() < _BARE or pieces[-1] not in ("", branch)
        pieces.append("" if bare else branch)
    return tuple(pieces[:height])
