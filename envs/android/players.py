"""Scripted players of the number game: they know the truth and answer as a model would.

Their thought reads the screen before it decides: the numbers from left to right, the places of the
cards from the smallest number to the largest, the lamp, the place chosen. Each word follows from
few others, so that a small model learns to think it, and the choice itself hangs on the lamp alone.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.envs.android import layout
from agentrl.envs.android.rules import CARDS, Phase

PLACES = ("left", "middle", "right")


class Expert:
    """Always picks right.

    Args:
        mode: `tap` or `select`, as the environment's.
    """

    def __init__(self, mode: str = "tap") -> None:
        self.mode = mode

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """The reply to the state whose truth stands in `info`."""
        if info["phase"] == Phase.LAMP:
            return f"<think>{info['lamp']}</think>{self._press()}"
        if info["phase"] != Phase.PICK:
            return f"<think>next</think>{self._press()}"
        card = self.choose(info, rng)
        numbers = info["numbers"]
        rising = sorted(range(CARDS), key=lambda place: numbers[place])
        words = [*map(str, numbers), *(PLACES[place] for place in rising), info["lamp"]]
        return f"<think>{' '.join(words)} {PLACES[card]}</think>{self._pick(card)}"

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> int:
        """The index of the card to pick."""
        return int(info["answer"])

    def _pick(self, card: int) -> str:
        return f"<action>select({card})</action>" if self.mode == "select" else _tap(card)

    def _press(self) -> str:
        return "<action>select(0)</action>" if self.mode == "select" else _tap(None)


class Mediocre(Expert):
    """Reads well, but mostly takes the largest number, whatever the lamp says.

    It picks right in `skill + (1 - skill) / 3` of all rounds. A model that copies it has a habit
    to leave behind, not only chance: under two lamps out of three its most frequent pick is wrong.

    Args:
        skill: the chance that it follows the lamp, in [0, 1].
        mode: `tap` or `select`, as the environment's.
    """

    def __init__(self, skill: float = 0.3, mode: str = "tap") -> None:
        super().__init__(mode)
        self.skill = skill

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> int:
        """The right card, or the largest."""
        if rng.random() < self.skill:
            return int(info["answer"])
        return int(np.argmax(info["numbers"]))


class Random(Expert):
    """Taps a card or the button, and now and then anywhere on the screen; it thinks nothing.

    Args:
        stray: the share of taps anywhere, in [0, 1].
        mode: `tap` or `select`, as the environment's.
    """

    def __init__(self, stray: float = 0.25, mode: str = "tap") -> None:
        super().__init__(mode)
        self.stray = stray

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """A reply that does not look at `info`."""
        if self.mode == "select":
            return self._pick(int(rng.integers(CARDS)))
        if rng.random() < self.stray:
            return f"<action>tap({rng.random():.2f}, {rng.random():.2f})</action>"
        target = int(rng.integers(CARDS + 1))
        return _tap(None if target == CARDS else target)


def _tap(card: int | None) -> str:
    """A tap on a card, or on the button where `card` is None."""
    x, y = layout.tap_at(layout.BUTTON if card is None else layout.CARDS[card])
    return f"<action>tap({x:.2f}, {y:.2f})</action>"
