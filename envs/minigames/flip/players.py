"""Scripted players of Flip: they know the truth and answer as a model would."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.envs.frame.players import Choice, RandomPlayer
from agentrl.envs.minigames.flip.phone import GAME
from agentrl.envs.minigames.players import Skilled


class Expert(Skilled):
    """Remembers every card that was shown, and nothing else."""

    game = GAME

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


def _unseen(known: list[int | None], cards: list[int]) -> list[int]:
    return [card for card in cards if known[card] is None]
