"""Scripted players of Timberman: they know the truth and answer as a model would."""

from collections.abc import Mapping
from typing import Any

from agentrl.envs.minigames.players import Skilled
from agentrl.envs.minigames.timberman.phone import GAME
from agentrl.envs.minigames.timberman.rules import MOVES
from agentrl.envs.phone_game.players import RandomPlayer


class Expert(Skilled):
    """Never makes a mistake."""

    game = GAME

    def best(self, info: Mapping[str, Any]) -> str:
        """A side with no branch now and none after the chop; the man's own where both are free."""
        now, above = info["pieces"][:2]
        sides = sorted(MOVES, key=lambda side: side != info["side"])
        free = [side for side in sides if side not in (now, above)]
        return (free or sides)[0]


class Mediocre(Expert):
    """Makes any call in half of its turns."""

    usual_skill = 0.5


class Random(RandomPlayer):
    """Makes any call, and touches anywhere now and then."""

    game = GAME
