"""Scripted players of the tree game: they see the true state and reply in a model's format.

Their reasoning reads the popup: `up` or `down` if the change of power is shown; otherwise the five
attributes' differences in order, and the conclusion.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.envs.android.phone_game.players import Choice, GamePlayer, RandomGamePlayer
from agentrl.envs.wechat.tree_game.app import GAME
from agentrl.envs.wechat.tree_game.rules import TreeGamePhase


class TreeGameExpert(GamePlayer):
    """Replaces a piece if that raises the power.

    Args:
        mode: `touch` or `calls`, the same as the environment's.
        style: how actions are written: `tag` or `tool`.
    """

    game = GAME

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """Choose to chop, or decide about the drop."""
        if info["phase"] != TreeGamePhase.DROP:
            return "chop", None
        return self.decide(info, rng), None

    def decide(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return `replace` or `decompose`."""
        return str(info["optimal"])

    def think(self, info: Mapping[str, Any], choice: Choice) -> str:
        """Return the direction in which the new piece would change the power."""
        if choice[0] == "chop":
            return "next"
        way = "up" if info["change"] > 0 else "down"
        if info["total"] == "shown":
            return way
        return " ".join([*map(str, info["differences"]), way])


class TreeGameMediocre(TreeGameExpert):
    """Reads the screen correctly, but mostly wears the new piece.

    A model that imitates it has a bad habit to unlearn, not just noise: its most frequent choice is
    wrong whenever the old piece is better.

    Args:
        skill: the probability of the right decision, in [0, 1].
        mode: `touch` or `calls`, the same as the environment's.
        style: how actions are written: `tag` or `tool`.
    """

    def __init__(self, skill: float = 0.3, mode: str = "touch", style: str = "tag") -> None:
        super().__init__(mode, style)
        self.skill = skill

    def decide(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return the right decision, or `replace`."""
        return str(info["optimal"]) if rng.random() < self.skill else "replace"


class TreeGameRandom(RandomGamePlayer):
    """Touches the axe and random buttons, and sometimes anywhere; no reasoning.

    For args and errors see `RandomGamePlayer`.
    """

    game = GAME

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """Choose a random button on the screen."""
        if info["phase"] != TreeGamePhase.DROP:
            return "chop", None
        return ("replace", "decompose")[int(rng.integers(2))], None
