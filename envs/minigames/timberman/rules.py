"""Timberman: a pure, seeded state machine.

A man stands on one side of a tree. A chop on a side brings him there and takes the lowest piece of
the trunk away; all that is above comes down by one. A branch that is on his side at the man's
height, before or after that, ends the game, and that chop is none. A bar runs out: each tick takes
one from it, each chop adds two up to its length, and when it is empty the game is lost as well.
Time is counted in ticks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl.envs.minigames.chance import chance
from agentrl.envs.phone_game.box import Box, Grid
from agentrl.envs.phone_game.rules import Place, Rules
from agentrl.envs.phone_game.settings import Paced, one_of

MOVES = ("left", "right")
GRID = Grid(columns=3, rows=5)
"""A row of a score board, then the tree between the two sides."""
SHOWN = 4
"""Pieces of the trunk that are seen, the one at the man's height included."""
BAR = 24
_REFILL = 2
_BARE = 0.25
"""The share of pieces without branch where there could be one."""


_SIDES = {
    "left": Box(0.0, GRID.cell(0, 1, margin=0).top, 0.5, 1.0),
    "right": Box(0.5, GRID.cell(0, 1, margin=0).top, 1.0, 1.0),
}


@dataclass(slots=True, kw_only=True, frozen=True)
class Level(Paced):
    """How long a game is, and how it is paced.

    Raises:
        ValueError: a value that its setting cannot have.
    """

    goal: int = one_of(30, range(1, 1001), "the chops that win, from 1 to 1000")
    ticks: int = one_of(1, range(1, 1001), "how many ticks an action takes, from 1 to 1000")


class Timberman(Rules):
    """One game.

    Args:
        seed: >= 0.
        **level: settings of `Level`.

    Raises:
        ValueError: a negative seed, or a level that does not exist.
    """

    def __init__(self, seed: int = 0, **level: Any) -> None:
        self.seed, self.goal = seed, Level(**level).goal
        self.score = 0
        self.side = "left"
        self.time_left = BAR
        self.hit = False
        self._pieces = grow(seed, self.goal + SHOWN)
        self._cut = 0

    def touch(self, x: float, y: float) -> bool:
        """Chop on the side that is touched."""
        return any(box.holds(x, y) and self.move(side) for side, box in _SIDES.items())

    def places(self) -> Mapping[str, Place]:
        """The two halves of the screen."""
        return _SIDES

    def move(self, name: str) -> bool:
        """Chop on the side `left` or `right`.

        Raises:
            ValueError: another side.
        """
        if name not in MOVES:
            raise ValueError(f"{name!r} is no move; there are {', '.join(MOVES)}.")
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

    @property
    def tick_ms(self) -> int:
        """A quarter of a second."""
        return 0 if self.done else 250

    def tick(self) -> bool:
        """Let a moment pass."""
        if self.done:
            return False
        self.time_left -= 1
        return True

    def moves(self) -> tuple[str, ...]:
        """Both sides, while there is anything to chop."""
        return () if self.done else MOVES

    @property
    def pieces(self) -> tuple[str, ...]:
        """The branches that are seen, from the man's height up: `left`, `right` or empty."""
        return self._pieces[self._cut : self._cut + SHOWN]

    @property
    def lost(self) -> bool:
        """Whether a branch has hit the man, or the time is up."""
        return self.hit or self.time_left <= 0

    @property
    def won(self) -> bool:
        """Whether he has chopped enough."""
        return self.score >= self.goal and not self.lost

    @property
    def done(self) -> bool:
        """Whether the game is over."""
        return self.lost or self.won

    def state(self) -> dict[str, Any]:
        """The truth as plain JSON values; `worth` is the score, less 1 for a game that is lost."""
        return {
            "score": self.score,
            "worth": self.score - self.lost,
            "side": self.side,
            "pieces": list(self.pieces),
            "time_left": self.time_left,
            "moves": list(self.moves()),
            "won": self.won,
            "lost": self.lost,
            "done": self.done,
        }


def grow(seed: int, height: int) -> tuple[str, ...]:
    """The branches of a tree from the ground up; a taller tree begins with the shorter one's.

    The first two pieces are bare, and between branches on opposite sides there is a bare piece:
    there is always a side to chop on.
    """
    pieces = ["", ""]
    for level in range(2, height):
        dice = chance(seed, level)
        branch = MOVES[int(dice.integers(2))]
        bare = dice.random() < _BARE or pieces[-1] not in ("", branch)
        pieces.append("" if bare else branch)
    return tuple(pieces[:height])
