"""A scripted player of the small games, as good as it is told to be."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.envs.frame.players import Choice, GamePlayer


class Skilled(GamePlayer):
    """Makes the best call, or now and then any.

    Args:
        skill: how often it makes the best one, in [0, 1].
        mode: `touch` or `calls`, as the environment's.
        style: in which actions are said: `tag` or `tool`.
    """

    def __init__(self, skill: float = 1.0, mode: str = "touch", style: str = "tag") -> None:
        super().__init__(mode, style)
        self.skill = skill

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """The best call, or any."""
        if rng.random() < self.skill:
            return self.best(info)
        return self.other(info, rng)

    def other(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """Any call of those that can be made, by their names in `info["moves"]`."""
        return str(rng.choice(info["moves"])), None

    @abstractmethod
    def best(self, info: Mapping[str, Any]) -> Choice:
        """The best call that this player knows."""
