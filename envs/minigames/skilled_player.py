"""The base class of the minigames' scripted players, with adjustable skill."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from agentrl.envs.phone_game.players import Choice, GamePlayer


class SkilledPlayer(GamePlayer):
    """Makes the best move with probability `skill`, else a random one of `info["moves"]`.

    Each game subclasses it and sets `game`; weaker players override `default_skill`.

    Args:
        skill: the probability of the best move, in [0, 1]; None for `default_skill`.
        mode: `touch` or `calls`, the same as the environment's.
        style: how actions are written: `tag` or `tool`.
    """

    default_skill: ClassVar[float] = 1.0

    def __init__(self, skill: float | None = None, mode: str = "touch", style: str = "tag") -> None:
        super().__init__(mode, style)
        self.skill = self.default_skill if skill is None else skill

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """The best move, or a random one."""
        best = rng.random() < self.skill
        return self.choice_of(self.best(info) if best else rng.choice(info["moves"]))

    @abstractmethod
    def best(self, info: Mapping[str, Any]) -> Any:
        """The best of `info["moves"]`, as far as this player can see."""

    def choice_of(self, move: Any) -> Choice:
        """The call that makes a move."""
        return str(move), None
