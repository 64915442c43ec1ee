"""The number game: a pure, seeded state machine.

Each round lights one of three lamps above three or four cards with distinct numbers. Green asks for
the largest number, yellow for the second largest (the middle one of three), red for the smallest.
A right pick adds 10 to the score, a wrong one subtracts 10. With `memory` the lamp is shown first,
while the cards lie face down, and goes out when they are turned.

With `timed` a round lasts a number of touches, as a clock in seconds would not be reproducible. The
clock restarts in each round and runs while a card can be picked: every touch that picks no card
takes one unit, wherever it lands. When it runs out, the round is lost as if by a wrong pick: 10
points are subtracted, the cards are locked, the right one is revealed, and the button opens the
next round, but no card counts as picked.
"""

from dataclasses import asdict
from enum import StrEnum
from typing import Any

from agentrl.envs.android.number_game.levels import NumberGameLevel, Round, draw_rounds, draw_tip

START_SCORE = 100
STAKE = 10


class NumberGamePhase(StrEnum):
    """Phase of the game, named after the action that the game waits for."""

    LAMP = "lamp"
    """Remember the lamp, then turn the cards (only with `memory`)."""
    PICK = "pick"
    REVEAL = "reveal"
    """The pick is made or the time is up, and the cards are locked: open the next round."""
    FINAL = "final"
    """The last round is over; only a restart remains."""


class NumberGameState:
    """One game, from its first round to its final score.

    Args:
        seed: >= 0; the same seed gives the same game.
        rounds: number of rounds, >= 1.
        **level: settings of `NumberGameLevel`.

    Raises:
        ValueError: negative seed, no rounds, or an invalid level.
    """

    def __init__(self, seed: int = 0, rounds: int = 10, **level: Any) -> None:
        if seed < 0:
            raise ValueError(f"seed is {seed}; it must be 0 or more.")
        if rounds < 1:
            raise ValueError(f"rounds is {rounds}; it must be at least 1.")
        self.seed = seed
        self.level = NumberGameLevel(**level)
        self.rounds = draw_rounds(seed, rounds, self.level)
        self.index = -1
        self.picks: list[int | None] = []
        """The card picked in each finished round; None if the time ran out."""
        self._open_round()

    def _open_round(self) -> None:
        self.index += 1
        self.phase = NumberGamePhase.LAMP if self.level.memory else NumberGamePhase.PICK
        self.time_left = self.level.timed

    def _close_round(self, pick: int | None) -> None:
        self.picks.append(pick)
        last = self.index == len(self.rounds) - 1
        self.phase = NumberGamePhase.FINAL if last else NumberGamePhase.REVEAL

    @property
    def round(self) -> Round:
        """The current round."""
        return self.rounds[self.index]

    @property
    def over(self) -> bool:
        """Whether the current round's pick is made, or its time is up."""
        return len(self.picks) > self.index

    @property
    def picked(self) -> int | None:
        """The card picked in the current round."""
        return self.picks[self.index] if self.over else None

    @property
    def right(self) -> int:
        """Number of right picks."""
        return sum(pick == r.answer for pick, r in zip(self.picks, self.rounds, strict=False))

    @property
    def wrong(self) -> int:
        """Number of picks that were wrong or not made in time."""
        return len(self.picks) - self.right

    @property
    def score(self) -> int:
        """The current score."""
        return START_SCORE + STAKE * (self.right - self.wrong)

    @property
    def change(self) -> int:
        """The change of the score in the current round; 0 before its end."""
        if not self.over:
            return 0
        return STAKE if self.picked == self.round.answer else -STAKE

    @property
    def tip(self) -> str | None:
        """The current round's irrelevant line; None without `distractor`."""
        if not self.level.distractor:
            return None
        return draw_tip(self.seed, self.index, self.level.numbers)

    def pick(self, card: int) -> bool:
        """Pick a card by index. Returns False, without any effect, if none can be picked now."""
        if self.phase is not NumberGamePhase.PICK:
            return False
        self._close_round(card)
        return True

    def advance(self) -> bool:
        """Press the button: turn the cards or open the next round. Returns False if disabled."""
        if self.phase is NumberGamePhase.LAMP:
            self.phase = NumberGamePhase.PICK
        elif self.phase is NumberGamePhase.REVEAL:
            self._open_round()
        else:
            return False
        return True

    def miss(self) -> bool:
        """Take one unit of time for a touch. Returns False, doing nothing, if no clock runs."""
        if not self.level.timed or self.phase is not NumberGamePhase.PICK:
            return False
        self.time_left -= 1
        if not self.time_left:
            self._close_round(None)
        return True

    def state(self) -> dict[str, Any]:
        """Return the true state as plain JSON values; rounds are counted from 1."""
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
            "done": self.phase is NumberGamePhase.FINAL,
        }
