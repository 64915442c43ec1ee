"""Scripted players of Timberman: they see the true state and reply in a model's format."""

from collections.abc import Mapping
from typing import Any

from agentrl.envs.android.minigames.timberman.env import GAME
from agentrl.envs.android.minigames.timberman.rules import MOVES
from agentrl.envs.android.phone_game.players import RandomGamePlayer, SkilledPlayer


class TimbermanExpert(SkilledPlayer):
    """Never makes a mistake."""

    game = GAME

    def best(self, info: Mapping[str, Any]) -> str:
        """Return a side free of branches before and after the chop, preferably the man's own."""
        now, above = info["pieces"][:2]
        sides = sorted(MOVES, key=lambda side: side != info["side"])
        free = [side for side in sides if side not in (now, above)]
        return (free or sides)[0]


class TimbermanMediocre(TimbermanExpert):
    """Makes a random call in half of its turns."""

    default_skill = 0.5


class TimbermanRandom(RandomGamePlayer):
    """Makes random calls, and sometimes touches anywhere."""

    game = GAME
