"""Scripted players of the tree game: they know the truth and answer as a model would.

Their thought says what the popup says: `up` or `down` where the change of power is shown; else the
five differences, in the order of the attributes, and what they come to.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.envs.phone_game.players import Choice, GamePlayer, RandomPlayer
from agentrl.envs.tree_game.app import GAME
from agentrl.envs.tree_game.rules import TreeGamePhase


class TreeGameExpert(GamePlayer):
    """Replaces a piece if that raises the power.

    Args:
        mode: `touch` or `calls`, as the environment's.
        style: in which actions are said: `tag` or `tool`.
    """

    game = GAME

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """Chop, or what is to be done with the drop."""
        if info["phase"] != TreeGamePhase.DROP:
            return "chop", None
        return self.decide(info, rng), None

    def decide(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """`replace` or `decompose`."""
        return str(info["optimal"])

    def think(self, info: Mapping[str, Any], choice: Choice) -> str:
        """Which way the power would go, whatever is then chosen."""
        if choice[0] == "chop":
            return "next"
        way = "up" if info["change"] > 0 else "down"
        if info["total"] == "shown":
            return way
        return " ".join([*map(str, info["differences"]), way])


class TreeGameMediocre(TreeGameExpert):
    """Reads well, but mostly wears whatever is new.

    A model that copies it has a habit to leave behind, not only chance: its most frequent choice
    is wrong wherever the old piece is better.

    Args:
        skill: the chance that it decides right, in [0, 1].
        mode: `touch` or `calls`, as the environment's.
        style: in which actions are said: `tag` or `tool`.
    """

    def __init__(self, skill: float = 0.3, mode: str = "touch", style: str = "tag") -> None:
        super().__init__(mode, style)
        self.skill = skill

    def decide(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """The right choice, or the new piece."""
        return str(info["optimal"]) if rng.random() < self.skill else "replace"


class TreeGameRandom(RandomPlayer):
    """Touches the axe and the buttons, and now and then anything; thinks nothing.

    Args and errors: as `RandomPlayer`.
    """

    game = GAME

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """One of the buttons on the screen."""
        if info["phase"] != TreeGamePhase.DROP:
            return "chop", None
        return ("replace", "decompose")[int(rng.integers(2))], None
