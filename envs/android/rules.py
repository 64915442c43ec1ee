"""The number game: a pure, seeded state machine.

Each round lights one of three lamps over three cards with distinct digits. Green asks for the
largest number, yellow for the middle one, red for the smallest. A right pick adds 10 to the
score, a wrong one takes 10 away. With `memory` the lamp is shown first, while the cards lie face
down, and is out when they are turned.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

LAMPS = ("green", "yellow", "red")
"""From left to right on the screen."""
CARDS = 3
START_SCORE = 100
STAKE = 10


class Phase(StrEnum):
    """What the player is to do."""

    LAMP = "lamp"
    """Remember the lamp, then turn the cards (only with `memory`)."""
    PICK = "pick"
    REVEAL = "reveal"
    """The pick is made and the cards are locked: open the next round."""
    FINAL = "final"
    """The last pick is made; only a restart is left."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Round:
    """What one round asks."""

    lamp: str
    numbers: tuple[int, int, int]

    @property
    def answer(self) -> int:
        """Index of the right card, from the left."""
        ranked = sorted(self.numbers)
        wanted = {"red": ranked[0], "yellow": ranked[1], "green": ranked[2]}[self.lamp]
        return self.numbers.index(wanted)


def draw_rounds(seed: int, rounds: int) -> tuple[Round, ...]:
    """The rounds of the game with this seed; a longer game begins with the shorter one's."""
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(rounds):
        lamp = LAMPS[int(rng.integers(len(LAMPS)))]
        first, second, third = (int(n) + 1 for n in rng.choice(9, size=CARDS, replace=False))
        drawn.append(Round(lamp=lamp, numbers=(first, second, third)))
    return tuple(drawn)


class NumberGame:
    """One game, from its first round to its final score.

    Args:
        seed: >= 0; the same seed gives the same game.
        rounds: how many, >= 1.
        memory: whether the lamp is shown before the cards and not with them.

    Raises:
        ValueError: a negative seed or no round.
    """

    def __init__(self, seed: int = 0, rounds: int = 10, memory: bool = False) -> None:
        if seed < 0:
            raise ValueError(f"seed is {seed}; it must be 0 or more.")
        if rounds < 1:
            raise ValueError(f"rounds is {rounds}; a game has at least 1.")
        self.seed = seed
        self.memory = memory
        self.rounds = draw_rounds(seed, rounds)
        self.index = 0
        self.picks: list[int] = []
        self.phase = self._opening

    @property
    def _opening(self) -> Phase:
        return Phase.LAMP if self.memory else Phase.PICK

    @property
    def round(self) -> Round:
        """The round on the screen."""
        return self.rounds[self.index]

    @property
    def picked(self) -> int | None:
        """The card picked in this round."""
        return self.picks[self.index] if len(self.picks) > self.index else None

    @property
    def right(self) -> int:
        """How many picks were right."""
        return sum(pick == r.answer for pick, r in zip(self.picks, self.rounds, strict=False))

    @property
    def wrong(self) -> int:
        """How many picks were wrong."""
        return len(self.picks) - self.right

    @property
    def score(self) -> int:
        """The score now."""
        return START_SCORE + STAKE * (self.right - self.wrong)

    @property
    def change(self) -> int:
        """What this round's pick did to the score; 0 before it."""
        if self.picked is None:
            return 0
        return STAKE if self.picked == self.round.answer else -STAKE

    def pick(self, card: int) -> bool:
        """Pick a card, 0 to 2 from the left; False, and nothing happens, when none can be."""
        if self.phase is not Phase.PICK:
            return False
        self.picks.append(card)
        last = self.index == len(self.rounds) - 1
        self.phase = Phase.FINAL if last else Phase.REVEAL
        return True

    def advance(self) -> bool:
        """Press the button: turn the cards, or open the next round; False where it is disabled."""
        if self.phase is Phase.LAMP:
            self.phase = Phase.PICK
        elif self.phase is Phase.REVEAL:
            self.index += 1
            self.phase = self._opening
        else:
            return False
        return True

    def state(self) -> dict[str, Any]:
        """The truth as plain JSON values; rounds count from 1."""
        return {
            "seed": self.seed,
            "memory": self.memory,
            "round": self.index + 1,
            "rounds": len(self.rounds),
            "phase": str(self.phase),
            "score": self.score,
            "change": self.change,
            "lamp": self.round.lamp,
            "numbers": list(self.round.numbers),
            "answer": self.round.answer,
            "picked": self.picked,
            "right": self.right,
            "wrong": self.wrong,
            "done": self.phase is Phase.FINAL,
        }
