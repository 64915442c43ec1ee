"""The number game: a pure, seeded state machine.

Each round lights one of three lamps over three or four cards with distinct numbers. Green asks for
the largest number, yellow for the second largest, which is the middle one of three, red for the
smallest. A right pick adds 10 to the score, a wrong one takes 10 away. With `memory` the lamp is
shown first, while the cards lie face down, and is out when they are turned.

With `timed` a round lasts so many touches: time is counted in them, for a game that went by seconds
could not be repeated. The clock starts anew in each round and runs while a card can be picked:
every touch that picks none takes one away, wherever it lands. With the last one the round is lost
as by a wrong pick: 10 are taken away, the cards are locked, the right one is revealed, and the
button opens the next round; only that no card counts as picked.
"""

from dataclasses import asdict
from enum import StrEnum
from typing import Any

from agentrl.envs.number_game.levels import Level
from agentrl.envs.number_game.rounds import Round, draw_rounds
from agentrl.envs.number_game.tips import draw_tip

START_SCORE = 100
STAKE = 10


class Phase(StrEnum):
    """What the player is to do."""

    LAMP = "lamp"
    """Remember the lamp, then turn the cards (only with `memory`)."""
    PICK = "pick"
    REVEAL = "reveal"
    """The pick is made, or the time is up, and the cards are locked: open the next round."""
    FINAL = "final"
    """The last round is over; only a restart is left."""


class NumberGame:
    """One game, from its first round to its final score.

    Args:
        seed: >= 0; the same seed gives the same game.
        rounds: how many, >= 1.
        **level: settings of `Level`.

    Raises:
        ValueError: a negative seed, no round, or a level that does not exist.
    """

    def __init__(self, seed: int = 0, rounds: int = 10, **level: Any) -> None:
        if seed < 0:
            raise ValueError(f"seed is {seed}; it must be 0 or more.")
        if rounds < 1:
            raise ValueError(f"rounds is {rounds}; a game has at least 1.")
        self.seed = seed
        self.level = Level(**level)
        self.rounds = draw_rounds(seed, rounds, self.level)
        self.index = -1
        self.picks: list[int | None] = []
        """The card picked in each round that is over; None where its time was up."""
        self._open_round()

    def _open_round(self) -> None:
        self.index += 1
        self.phase = Phase.LAMP if self.level.memory else Phase.PICK
        self.time_left = self.level.timed

    def _close_round(self, pick: int | None) -> None:
        self.picks.append(pick)
        last = self.index == len(self.rounds) - 1
        self.phase = Phase.FINAL if last else Phase.REVEAL

    @property
    def round(self) -> Round:
        """The round on the screen."""
        return self.rounds[self.index]

    @property
    def over(self) -> bool:
        """Whether this round's pick is made, or its time up."""
        return len(self.picks) > self.index

    @property
    def picked(self) -> int | None:
        """The card picked in this round."""
        return self.picks[self.index] if self.over else None

    @property
    def right(self) -> int:
        """How many picks were right."""
        return sum(pick == r.answer for pick, r in zip(self.picks, self.rounds, strict=False))

    @property
    def wrong(self) -> int:
        """How many picks were wrong, or not made in time."""
        return len(self.picks) - self.right

    @property
    def score(self) -> int:
        """The score now."""
        return START_SCORE + STAKE * (self.right - self.wrong)

    @property
    def change(self) -> int:
        """What this round did to the score; 0 before its end."""
        if not self.over:
            return 0
        return STAKE if self.picked == self.round.answer else -STAKE

    @property
    def tip(self) -> str | None:
        """This round's line of no use, with `distractor`."""
        if not self.level.distractor:
            return None
        return draw_tip(self.seed, self.index, self.level.numbers)

    def pick(self, card: int) -> bool:
        """Pick a card, counted from 0; False, and nothing happens, when none can be."""
        if self.phase is not Phase.PICK:
            return False
        self._close_round(card)
        return True

    def advance(self) -> bool:
        """Press the button: turn the cards, or open the next round; False where it is disabled."""
        if self.phase is Phase.LAMP:
            self.phase = Phase.PICK
        elif self.phase is Phase.REVEAL:
            self._open_round()
        else:
            return False
        return True

    def miss(self) -> bool:
        """Let a touch take time; False, and nothing happens, where no clock runs."""
        if not self.level.timed or self.phase is not Phase.PICK:
            return False
        self.time_left -= 1
        if not self.time_left:
            self._close_round(None)
        return True

    def state(self) -> dict[str, Any]:
        """The truth as plain JSON values; rounds count from 1."""
        return {
            "seed": self.seed,
            **asdict(self.level),
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
            "tip": self.tip,
            "time_left": self.time_left,
            "done": self.phase is Phase.FINAL,
        }
