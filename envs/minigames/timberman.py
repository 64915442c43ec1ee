"""Timberman: a pure, seeded state machine.

A man stands on one side of a tree. A chop on a side brings him there and takes the lowest piece of
the trunk away; all that is above comes down by one. A branch that is on his side at the man's
height, before or after that, ends the game. A bar runs out: each tick takes one from it, each chop
adds two up to its length, and when it is empty the game is lost as well. Time is counted in ticks.
"""

from typing import Any

from agentrl.envs.minigames.chance import chance, check

MOVES = ("left", "right")
SHOWN = 4
"""Pieces of the trunk that are seen, the one at the man's height included."""
BAR = 24
_REFILL = 2
_BARE = 0.25
"""The share of pieces without branch where there could be one."""


class Timberman:
    """One game.

    Args:
        seed: >= 0.
        goal: the chops that win and end the game, >= 1.

    Raises:
        ValueError: a negative seed, or no chop.
    """

    ticks_per_turn = 1

    def __init__(self, seed: int = 0, goal: int = 30) -> None:
        check(seed, goal=goal)
        self.seed, self.goal = seed, goal
        self.score = 0
        self.side = "left"
        self.time_left = BAR
        self.hit = False
        self._pieces = grow(seed, goal + SHOWN)

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
        if self._pieces[self.score] == name:
            self.hit = True
            return True
        self.score += 1
        self.time_left = min(self.time_left + _REFILL, BAR)
        self.hit = self._pieces[self.score] == name
        return True

    def tick(self) -> None:
        """Let a moment pass."""
        if not self.done:
            self.time_left -= 1

    def moves(self) -> tuple[str, ...]:
        """Both sides, while there is anything to chop."""
        return () if self.done else MOVES

    @property
    def pieces(self) -> tuple[str, ...]:
        """The branches that are seen, from the man's height up: `left`, `right` or empty."""
        return self._pieces[self.score : self.score + SHOWN]

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
        """The truth as plain JSON values."""
        return {
            "seed": self.seed,
            "goal": self.goal,
            "score": self.score,
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
