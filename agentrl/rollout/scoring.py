"""Score an episode by the reward functions that the configuration names."""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agentrl import plugins
from agentrl.config import RewardConfig
from agentrl.errors import ConfigError, RewardError, boundary
from agentrl.types import Episode, ScoredEpisode

RewardFunction = Callable[..., float | Sequence[float]]


def env_reward(episode: Episode) -> Sequence[float]:
    """The environment's own reward of each turn."""
    return [turn.env_reward for turn in episode.turns]


class Scorer:
    """The weighted sum of some reward functions; the environment's own reward if none is named.

    Raises:
        ConfigError: a function does not exist, cannot be called, or does not take its kwargs.
    """

    def __init__(self, rewards: Sequence[RewardConfig]) -> None:
        self._parts: list[tuple[str, RewardFunction, float, dict[str, Any]]] = []
        for config in rewards:
            function = plugins.load(config.function)
            _check_callable(config, function)
            name = _own_name(config.function, [part[0] for part in self._parts])
            self._parts.append((name, function, config.weight, dict(config.kwargs)))
        if not self._parts:
            self._parts.append(("env_reward", env_reward, 1.0, {}))

    def score(self, episode: Episode) -> ScoredEpisode:
        """All components and their weighted sum; a void episode has none.

        Raises:
            RewardError: a function raised, or returned something that is no reward.
        """
        if episode.outcome.void or not episode.turns:
            return ScoredEpisode(
                episode=episode, components={}, rewards=(0.0,) * len(episode.turns)
            )
        components: dict[str, tuple[float, ...]] = {}
        totals = [0.0] * len(episode.turns)
        for name, function, weight, kwargs in self._parts:
            with boundary(RewardError, f"reward {name} of episode {episode.id}"):
                components[name] = _per_turn(name, function(episode, **kwargs), episode)
            totals = [t + weight * c for t, c in zip(totals, components[name], strict=True)]
        if not all(math.isfinite(total) for total in totals):
            raise RewardError(f"the rewards of episode {episode.id} add up to {totals}")
        return ScoredEpisode(episode=episode, components=components, rewards=tuple(totals))


def _own_name(function: str, taken: Sequence[str]) -> str:
    """The function's name; numbered where another component has it."""
    stem = function.rpartition(":")[2]
    return stem if stem not in taken else f"{stem}-{sum(n.startswith(stem) for n in taken) + 1}"


def _check_callable(config: RewardConfig, function: Any) -> None:
    if not callable(function):
        raise ConfigError(f"rewards: {config.function} is no function")
    try:
        inspect.signature(function).bind(None, **config.kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"rewards: {config.function} does not take its kwargs: {error}") from None


def _per_turn(name: str, value: Any, episode: Episode) -> tuple[float, ...]:
    """One number is credited to the last turn."""
    count = len(episode.turns)
    if np.ndim(value) == 0:
        values = (0.0,) * (count - 1) + (float(value),)
    else:
        values = tuple(float(v) for v in value)
    if len(values) != count:
        raise RewardError(f"reward {name}: {len(values)} values for {count} turns")
    if not all(math.isfinite(v) for v in values):
        raise RewardError(f"reward {name}: {values} is not finite")
    return values
