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

from agentrl.envs.number_game.app import GAME
from agentrl.envs.number_game.places import STILL
from agentrl.envs.number_game.rules import Phase
from agentrl.envs.number_game.translator import MODES
from agentrl.envs.phone_game.players import Choice, GamePlayer

PLACES = ("left", "middle", "right")


class Expert(GamePlayer):
    """Always picks right.

    Args:
        mode: `tap` or `select`, as the environment's.
        style: in which actions are said: `tag` or `tool`.
        notes: whether it writes the lamp down where it goes out: for a history that carries what
            is between `<memory>` and `</memory>` along.
    """

    game = GAME
    modes = MODES

    def __init__(self, mode: str = "tap", style: str = "tag", notes: bool = False) -> None:
        super().__init__(mode, style)
        self.notes = notes

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """The reply to the state whose truth stands in `info`."""
        reply = super().reply(info, rng)
        if self.notes and info["phase"] == Phase.LAMP:
            return f"<memory>{info['lamp']}</memory>{reply}"
        return reply

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """A card, or the button."""
        if info["phase"] == Phase.PICK:
            return "cards", self.card(info, rng)
        return "button", None

    def card(self, info: Mapping[str, Any], rng: np.random.Generator) -> int:
        """The index of the card to pick."""
        return int(info["answer"])

    def think(self, info: Mapping[str, Any], choice: Choice) -> str:
        """What is read off the screen, and what follows from it."""
        if info["phase"] == Phase.LAMP:
            return str(info["lamp"])
        if choice[1] is None:
            return "next"
        numbers, places = info["numbers"], _names(info)
        rising = sorted(range(len(numbers)), key=lambda place: numbers[place])
        words = [*map(str, numbers), *(places[place] for place in rising), info["lamp"]]
        return f"{' '.join(words)} {places[choice[1]]}"

    def say(self, info: Mapping[str, Any], name: str, index: int | None = None) -> str:
        """A tap; or a card, where any will do in place of the button."""
        if self.mode == "select":
            return self.calls.say("select", index or 0)
        place = _taps(info)[name]
        return self.touch(place if index is None else place[index])


class Mediocre(Expert):
    """Reads well, but mostly takes the largest number, whatever the lamp says.

    It picks right in `skill + (1 - skill) / 3` of all rounds. A model that copies it has a habit
    to leave behind, not only chance: under two lamps out of three its most frequent pick is wrong.

    Args:
        skill: the chance that it follows the lamp, in [0, 1].
        mode: `tap` or `select`, as the environment's.
        style: in which actions are said: `tag` or `tool`.
        notes: see Expert.
    """

    def __init__(
        self, skill: float = 0.3, mode: str = "tap", style: str = "tag", notes: bool = False
    ) -> None:
        super().__init__(mode, style, notes)
        self.skill = skill

    def card(self, info: Mapping[str, Any], rng: np.random.Generator) -> int:
        """The right card, or the largest."""
        if rng.random() < self.skill:
            return int(info["answer"])
        return int(np.argmax(info["numbers"]))


class Random(Expert):
    """Taps a card or the button, and now and then anywhere on the screen; it thinks nothing.

    Args:
        stray: the share of taps anywhere, in [0, 1].
        mode: `tap` or `select`, as the environment's.
        style: in which actions are said: `tag` or `tool`.
    """

    def __init__(self, stray: float = 0.25, mode: str = "tap", style: str = "tag") -> None:
        super().__init__(mode, style)
        self.stray = stray

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """A reply that looks at `info` for nothing but where to tap."""
        cards = len(info["numbers"])
        if self.mode == "select":
            return self.say(info, "cards", int(rng.integers(cards)))
        if rng.random() < self.stray:
            return self.touch((rng.random(), rng.random()))
        target = int(rng.integers(cards + 1))
        return self.say(info, "button") if target == cards else self.say(info, "cards", target)


def _names(info: Mapping[str, Any]) -> Sequence[str]:
    """What a thought calls the places of the cards."""
    cards = len(info["numbers"])
    return PLACES if cards == 3 and not info.get("moved") else [str(card) for card in range(cards)]


def _taps(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where to tap; a truth that does not say so is of a game where nothing is moved."""
    return info.get("places") or STILL[len(info["numbers"])].taps()
