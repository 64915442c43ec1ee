"""A scripted player of the small games, as good as it is told to be."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from agentrl.envs.phone_game.players import Choice, GamePlayer


class Skilled(GamePlayer):
    """Makes the best move, or now and then any of `info["moves"]`.

    A class of its own for each game names the `game`, and one of less skill its `usual_skill`.

    Args:
        skill: how often it makes the best one, in [0, 1]; None for the usual one.
        mode: `touch` or `calls`, as the environment's.
        style: in which actions are said: `tag` or `tool`.
    """

    usual_skill: ClassVar[float] = 1.0

    def __init__(self, skill: float | None = None, mode: str = "touch", style: str = "tag") -> None:
        super().__init__(mode, style)
        self.skill = self.usual_skill if skill is None else skill

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """The best move, or any."""
        best = rng.random() < self.skill
        return self.choice_of(self.best(info) if best else rng.choice(info["moves"]))

    @abstractmethod
    def best(self, info: Mapping[str, Any]) -> Any:
        """The best of `info["moves"]` that this player knows."""

    def choice_of(self, move: Any) -> Choice:
        """How a move is made: by the call of its name."""
        return str(move), None
