"""What the rounds of a number game ask, drawn from its seed."""

from dataclasses import dataclass

import numpy as np

from agentrl.envs.number_game.levels import Level

LAMPS = ("green", "yellow", "red")
"""From left to right on the screen."""
PLAIN = Level()
_RANK = {"green": -1, "yellow": -2, "red": 0}
"""Where the number that a lamp asks for stands among the rising ones."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Round:
    """What one round asks."""

    lamp: str
    numbers: tuple[int, ...]

    @property
    def answer(self) -> int:
        """Index of the right card."""
        return self.numbers.index(sorted(self.numbers)[_RANK[self.lamp]])


def draw_rounds(seed: int, rounds: int, level: Level = PLAIN) -> tuple[Round, ...]:
    """The rounds of the game with this seed; a longer game begins with the shorter one's."""
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(rounds):
        lamp = LAMPS[int(rng.integers(len(LAMPS)))]
        indices = rng.choice(len(level.numbers), size=level.cards, replace=False)
        drawn.append(Round(lamp=lamp, numbers=tuple(level.numbers[int(i)] for i in indices)))
    return tuple(drawn)
