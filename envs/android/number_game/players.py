"""Scripted players of the number game: they see the true state and reply in a model's format.

Their reasoning reads the screen before it decides: the numbers from left to right, the positions of
the cards from the smallest number to the largest, the lamp, the chosen position. Each word follows
from a few others, so that a small model can learn it, and the final choice depends only on the
lamp. A position is `left`, `middle` or `right`; with four cards, or if they are moved, it is the
card's index in reading order, as in `select(0)`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.envs.android.number_game.app import GAME
from agentrl.envs.android.number_game.game_state import NumberGamePhase
from agentrl.envs.android.number_game.layout import FIXED_LAYOUTS
from agentrl.envs.android.number_game.translator import MODES
from agentrl.envs.android.phone_game.players import Choice, GamePlayer

PLACES = ("left", "middle", "right")


class NumberGameExpert(GamePlayer):
    """Always picks the right card.

    Args:
        mode: `tap` or `select`, the same as the environment's.
        style: how actions are written: `tag` or `tool`.
        notes: whether it writes down a lamp that is about to go out, for a history that keeps the
            text between `<memory>` and `</memory>`.
    """

    game = GAME
    modes = MODES

    def __init__(self, mode: str = "tap", style: str = "tag", notes: bool = False) -> None:
        super().__init__(mode, style)
        self.notes = notes

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return the reply to the state described by `info`."""
        reply = super().reply(info, rng)
        if self.notes and info["phase"] == NumberGamePhase.LAMP:
            return f"<memory>{info['lamp']}</memory>{reply}"
        return reply

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """Choose a card or the button."""
        if info["phase"] == NumberGamePhase.PICK:
            return "cards", self.card(info, rng)
        return "button", None

    def card(self, info: Mapping[str, Any], rng: np.random.Generator) -> int:
        """Return the index of the card to pick."""
        return int(info["answer"])

    def think(self, info: Mapping[str, Any], choice: Choice) -> str:
        """Write down the screen's content and the conclusion."""
        if info["phase"] == NumberGamePhase.LAMP:
            return str(info["lamp"])
        if choice[1] is None:
            return "next"
        numbers, places = info["numbers"], _names(info)
        ascending = sorted(range(len(numbers)), key=lambda card: numbers[card])
        words = [*map(str, numbers), *(places[card] for card in ascending), info["lamp"]]
        return f"{' '.join(words)} {places[choice[1]]}"

    def say(
        self, info: Mapping[str, Any], name: str, index: int | None = None, thought: str = ""
    ) -> str:
        """Return the reply that taps or selects a card; for the button, select any card."""
        if self.mode == "select":
            return super().say(info, "select", index or 0, thought)
        target = _taps(info)[name]
        return self.touch(info, target if index is None else target[index], thought)


class NumberGameMediocre(NumberGameExpert):
    """Reads the screen correctly, but mostly picks the largest number, whatever the lamp says.

    It is right in `skill + (1 - skill) / 3` of all rounds. A model that imitates it has a bad habit
    to unlearn, not just noise: for two lamps out of three its most frequent pick is wrong.

    Args:
        skill: the probability that it follows the lamp, in [0, 1].
        mode: `tap` or `select`, the same as the environment's.
        style: how actions are written: `tag` or `tool`.
        notes: see NumberGameExpert.
    """

    def __init__(
        self, skill: float = 0.3, mode: str = "tap", style: str = "tag", notes: bool = False
    ) -> None:
        super().__init__(mode, style, notes)
        self.skill = skill

    def card(self, info: Mapping[str, Any], rng: np.random.Generator) -> int:
        """Return the right card or the largest card."""
        if rng.random() < self.skill:
            return int(info["answer"])
        return int(np.argmax(info["numbers"]))


class NumberGameRandom(NumberGameExpert):
    """Taps a random card or the button, and sometimes anywhere on the screen; no reasoning.

    Args:
        stray: the share of taps anywhere, in [0, 1].
        mode: `tap` or `select`, the same as the environment's.
        style: how actions are written: `tag` or `tool`.
    """

    def __init__(self, stray: float = 0.25, mode: str = "tap", style: str = "tag") -> None:
        super().__init__(mode, style)
        self.stray = stray

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return a random reply; `info` only provides the positions to tap."""
        cards = len(info["numbers"])
        if self.mode == "select":
            return self.say(info, "cards", int(rng.integers(cards)))
        if rng.random() < self.stray:
            return self.touch(info, (rng.random(), rng.random()))
        target = int(rng.integers(cards + 1))
        return self.say(info, "button") if target == cards else self.say(info, "cards", target)


def _names(info: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of the cards' positions that the reasoning uses."""
    cards = len(info["numbers"])
    return PLACES if cards == 3 and not info.get("moved") else [str(card) for card in range(cards)]


def _taps(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the positions to tap; facts without `touch_targets` mean the fixed layout."""
    return info.get("touch_targets") or FIXED_LAYOUTS[len(info["numbers"])].taps()
