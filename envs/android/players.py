"""Scripted players of the number game: they know the truth and answer as a model would.

Their thought reads the screen before it decides: the numbers from left to right, the places of the
cards from the smallest number to the largest, the lamp, the place chosen. Each word follows from
few others, so that a small model learns to think it, and the choice itself hangs on the lamp alone.
A card's place is `left`, `middle` or `right`; where there are four cards, or they are moved, it is
the card's number in reading order, from 0, as in `select(0)`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.envs.android.places import STILL
from agentrl.envs.android.rules import Phase

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
            return f"<think>{info['lamp']}</think>{self._press(info)}"
        if info["phase"] != Phase.PICK:
            return f"<think>next</think>{self._press(info)}"
        card = self.choose(info, rng)
        numbers, places = info["numbers"], _names(info)
        rising = sorted(range(len(numbers)), key=lambda place: numbers[place])
        words = [*map(str, numbers), *(places[place] for place in rising), info["lamp"]]
        return f"<think>{' '.join(words)} {places[card]}</think>{self._pick(info, card)}"

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> int:
        """The index of the card to pick."""
        return int(info["answer"])

    def _pick(self, info: Mapping[str, Any], card: int) -> str:
        if self.mode == "select":
            return f"<action>select({card})</action>"
        return _tap(*_taps(info)["cards"][card])

    def _press(self, info: Mapping[str, Any]) -> str:
        if self.mode == "select":
            return "<action>select(0)</action>"
        return _tap(*_taps(info)["button"])


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
        """A reply that looks at `info` for nothing but where to tap."""
        cards = len(info["numbers"])
        if self.mode == "select":
            return self._pick(info, int(rng.integers(cards)))
        if rng.random() < self.stray:
            return _tap(rng.random(), rng.random())
        target = int(rng.integers(cards + 1))
        return self._press(info) if target == cards else self._pick(info, target)


def _names(info: Mapping[str, Any]) -> Sequence[str]:
    """What a thought calls the places of the cards."""
    cards = len(info["numbers"])
    return PLACES if cards == 3 and not info.get("moved") else [str(card) for card in range(cards)]


def _taps(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where to tap; a truth that does not say so is of a game where nothing is moved."""
    return info.get("places") or STILL[len(info["numbers"])].taps()


def _tap(x: float, y: float) -> str:
    return f"<action>tap({x:.2f}, {y:.2f})</action>"
