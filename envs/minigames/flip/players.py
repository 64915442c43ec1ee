"""Scripted players of Flip: they know the truth and answer as a model would."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.envs.minigames.flip.phone import GAME
from agentrl.envs.minigames.players import Skilled
from agentrl.envs.phone_game.players import Choice, RandomPlayer


class Expert(Skilled):
    """Remembers every card that was shown, and nothing else.

    Args:
        skill: how often it makes the best move, in [0, 1]; None for the usual one.
        mode: `touch` or `calls`, as the environment's.
        style: in which actions are said: `tag` or `tool`.
        notes: whether it writes down what it has seen, and thinks of where the partner lies: for a
            history that carries what is between `<memory>` and `</memory>` along.
    """

    game = GAME

    def __init__(
        self,
        skill: float | None = None,
        mode: str = "touch",
        style: str = "tag",
        notes: bool = False,
    ) -> None:
        super().__init__(skill, mode, style)
        self.notes = notes

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """The reply to the state whose truth stands in `info`."""
        reply = super().reply(info, rng)
        return f"<memory>{_note(info)}</memory>{reply}" if self.notes else reply

    def think(self, info: Mapping[str, Any], choice: Choice) -> str:
        """The open card's picture and the best card; `?` between them where it is not known."""
        if not self.notes:
            return ""
        seen, best, open_ = _seen(info), self.best(info), list(info["open"])
        picture = _letter(seen[open_[0]]) if len(open_) == 1 else ""
        known = best in seen
        if known and not picture:
            picture = _letter(seen[best])
        return f"{picture}{'' if known else '?'}{best}"

    def best(self, info: Mapping[str, Any]) -> int:
        """The partner of the open card, a pair that is known, or the first card never seen."""
        known, found = info["known"], info["found"]
        moves = info["moves"]
        if len(info["open"]) == 1:
            face = known[info["open"][0]]
            partners = [card for card in moves if known[card] == face]
            return int((partners or _unseen(known, moves) or moves)[0])
        closed = [card for card in range(len(known)) if card not in found]
        for card in moves:
            if known[card] is not None and any(
                known[other] == known[card] for other in closed if other != card
            ):
                return int(card)
        return int((_unseen(known, moves) or moves)[0])

    def choice_of(self, move: int) -> Choice:
        """Turning the card of this number."""
        return "flip", int(move)


class Mediocre(Expert):
    """Turns any card that lies face down in half of its turns."""

    usual_skill = 0.5


class Random(RandomPlayer):
    """Turns any card of the table, and touches anywhere now and then."""

    game = GAME

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """Any card."""
        return "flip", int(rng.integers(len(info["faces"])))


def _seen(info: Mapping[str, Any]) -> dict[int, int]:
    """The pictures that were seen of the cards that are still to be found."""
    known, found = info["known"], info["found"]
    return {
        card: int(face) for card, face in enumerate(known) if face is not None and card not in found
    }


def _note(info: Mapping[str, Any]) -> str:
    """What was seen, each picture a letter, with the number of its card: `c0 a2 c5`."""
    return " ".join(f"{_letter(face)}{card}" for card, face in _seen(info).items()) or "-"


def _letter(face: int) -> str:
    return chr(ord("a") + face)


def _unseen(known: list[int | None], cards: list[int]) -> list[int]:
    return [card for card in cards if known[card] is None]
