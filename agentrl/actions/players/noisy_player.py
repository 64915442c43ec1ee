"""A scripted player that plays well, except in some of its turns."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.actions.dialect import Dialect
from agentrl.actions.players.player import Player, scripted_reply, takes_observation
from agentrl.errors import ConfigError


class NoisyPlayer:
    """Plays like the environment's expert, but in some turns like its random player.

    A model that imitates the expert has nothing left to learn; one that imitates the random player
    may never reach a goal.

    Args:
        expert: the environment's player of that name, as is `random`.
        random: plays the other turns.
        noise: probability that a turn is random, in [0, 1].

    Raises:
        ConfigError: the noise is not a probability.
    """

    def __init__(self, expert: Player, random: Player, noise: float = 0.5) -> None:
        if not 0.0 <= noise <= 1.0:
            raise ConfigError(f"env.player_kwargs.noise={noise}: must lie between 0 and 1")
        self._expert, self._random, self._noise = expert, random, noise
        self.takes_observation = takes_observation(expert) or takes_observation(random)
        self.dialect: Dialect | None = None
        """How actions are written; both players have their own."""

    def reply(
        self, info: Mapping[str, Any], rng: np.random.Generator, observation: Any = None
    ) -> str:
        """Return the reply of the expert or of the random player."""
        player = self._random if rng.random() < self._noise else self._expert
        return scripted_reply(player, observation, info, rng)
