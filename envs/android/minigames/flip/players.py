"""Scripted players of Flip: they see the true state and reply in a model's format."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.envs.android.minigames.flip.env import GAME
from agentrl.envs.android.phone_game.players import Choice, RandomGamePlayer, SkilledPlayer


class FlipExpert(SkilledPlayer):
    """Remembers every card that was shown, and knows nothing else.

    Args:
        skill: the probability of the best move, in [0, 1]; None for `default_skill`.
        mode: `touch` or `calls`, the same as the environment's.
        style: how actions are written: `tag` or `tool`.
        notes: whether it writes down the cards it has seen and reasons about the partner, for a
            history that keeps the text between `<memory>` and `</memory>`.
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
        """Return the reply to the state described by `info`."""
        reply = super().reply(info, rng)
        return f"<memory>{_note(info)}</memory>{reply}" if self.notes else reply

    def think(self, info: Mapping[str, Any], choice: Choice) -> str:
        """Write the open card's face and the best card, after a `?` if its face is unknown."""
        if not self.notes:
            return ""
        seen, best, open_ = _seen(info), self.best(info), list(info["open"])
        picture = _letter(seen[open_[0]]) if len(open_) == 1 else ""
        known = best in seen
        if known and not picture:
            picture = _letter(seen[best])
        return f"{picture}{'' if known else '?'}{best}"

    def best(self, info: Mapping[str, Any]) -> int:
        """Return the open card's partner, a card of a known pair, or the first unseen card."""
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
        """Return the call that turns this card."""
        return "flip", int(move)


class FlipMediocre(FlipExpert):
    """Turns a random face-down card in half of its turns."""

    default_skill = 0.5


class FlipRandom(RandomGamePlayer):
    """Turns random cards, and sometimes touches anywhere."""

    game = GAME

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """Choose a random card."""
        return "flip", int(rng.integers(len(info["faces"])))


def _seen(info: Mapping[str, Any]) -> dict[int, int]:
    """Return the faces seen so far of cards that are not yet matched."""
    known, found = info["known"], info["found"]
    return {
        card: int(face) for card, face in enumerate(known) if face is not None and card not in found
    }


def _note(info: Mapping[str, Any]) -> str:
    """List the cards seen so far, each as its face's letter and its index: `c0 a2 c5`."""
    return " ".join(f"{_letter(face)}{card}" for card, face in _seen(info).items()) or "-"


def _letter(face: int) -> str:
    return chr(ord("a") + face)


def _unseen(known: list[int | None], cards: list[int]) -> list[int]:
    return [card for card in cards if known[card] is None]
