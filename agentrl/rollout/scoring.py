"""Score an episode with the reward functions that the configuration names."""

import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agentrl.config import RewardConfig
from agentrl.data.reward_inputs import env_reward
from agentrl.errors import ConfigError, RewardError, boundary, describe_error
from agentrl.extension_points import REWARD
from agentrl.rollout.reward_adapters import (
    OVERALL,
    BatchReward,
    batch_from_single,
    finite,
    inputs_of,
)
from agentrl.types import Episode, ScoredEpisode

RewardFunction = Callable[..., float | Sequence[float]]
_FLOAT32_MAX = float(np.finfo(np.float32).max)
Component = Callable[[Episode], dict[str, tuple[float, ...]]]
"""Returns the reward per turn under the component's own name, and further values for the record."""


class RewardFunctions:
    """The weighted sum of reward functions; the environment's own reward if none is named.

    Args:
        rewards: the functions. A class is instantiated once with its kwargs, and the object is
            called without them.
        deadline_s: for a batch function to score one episode.

    Raises:
        ConfigError: a function does not exist, cannot be called, or does not accept its kwargs.
    """

    def __init__(self, rewards: Sequence[RewardConfig], deadline_s: float = 60.0) -> None:
        self._components: list[tuple[str, Component, float]] = []
        for config in rewards:
            name = _unique_name(config.function, [part[0] for part in self._components])
            self._components.append((name, _component(name, config, deadline_s), config.weight))
        if not self._components:
            self._components.append(("env_reward", _per_episode("env_reward", env_reward), 1.0))

    def score(self, episode: Episode) -> ScoredEpisode:
        """All components and their weighted sum; a void episode has no reward.

        Raises:
            RewardError: a function raised, or returned something that is not a reward.
        """
        if episode.outcome.void or not episode.turns:
            return ScoredEpisode(
                episode=episode, components={}, rewards=(0.0,) * len(episode.turns)
            )
        components: dict[str, tuple[float, ...]] = {}
        totals = [0.0] * len(episode.turns)
        for name, component, weight in self._components:
            with boundary(RewardError, f"reward {name}"):
                values = component(episode)
            components |= values
            totals = [t + weight * c for t, c in zip(totals, values[name], strict=True)]
        # The learner computes in float32.
        if not all(abs(total) <= _FLOAT32_MAX for total in (*totals, sum(totals))):
            raise RewardError(f"the rewards {totals} add up to {sum(totals)}: too large")
        return ScoredEpisode(episode=episode, components=components, rewards=tuple(totals))


def _component(name: str, config: RewardConfig, deadline_s: float) -> Component:
    """A configured function as a component.

    Raises:
        ConfigError: see RewardFunctions.
    """
    function, is_batch = load_reward_function(config)
    if is_batch:
        return _per_batch(name, BatchReward(f"reward {name}", function, deadline_s))
    return _per_episode(name, function)


def load_reward_function(config: RewardConfig) -> tuple[Callable[..., Any], bool]:
    """A configured function bound to its kwargs, and whether it takes batches.

    Raises:
        ConfigError: see RewardFunctions.
    """
    function = REWARD.resolve(config.function)
    if inspect.isclass(function):
        function = _construct(config, function)
        kind = _detect_kind(config, function)
    elif callable(function):
        kind = _detect_kind(config, function)
        _check_signature(config, function, (None,) * (3 if kind == "answer" else 1))
        function = functools.partial(function, **config.kwargs)
    if not callable(function):
        raise ConfigError(f"rewards: {config.function} is not a function")
    return batch_from_single(function) if kind == "answer" else function, kind != "episode"


def _construct(config: RewardConfig, kind: type) -> Any:
    _check_signature(config, kind, ())
    try:
        return kind(**config.kwargs)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"rewards: {config.function} cannot be constructed: {describe_error(error)}"
        ) from error


def _detect_kind(config: RewardConfig, function: Any) -> str:
    """The configured kind of a function, or the one that its first parameter's name implies."""
    if config.kind != "auto":
        return config.kind
    first = next(iter(inspect.signature(function).parameters), "") if callable(function) else ""
    return {"reward_inputs": "batch", "data_source": "answer"}.get(first, "episode")


def _per_batch(name: str, reward: BatchReward) -> Component:
    """`overall` under the function's own name, other components as `NAME/component`."""

    def component(episode: Episode) -> dict[str, tuple[float, ...]]:
        row = reward.score(inputs_of(episode))
        before = (0.0,) * (len(episode.turns) - 1)
        return {
            name if key == OVERALL else f"{name}/{key}": (*before, value)
            for key, value in row.items()
        }

    return component


def _per_episode(name: str, function: RewardFunction) -> Component:
    def component(episode: Episode) -> dict[str, tuple[float, ...]]:
        return {name: _per_turn(name, function(episode), episode)}

    return component


def _unique_name(function: str, taken: Sequence[str]) -> str:
    """The function's name; numbered from 2 if other components have it."""
    stem = function.rpartition(":")[2]
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


def _check_signature(config: RewardConfig, function: Any, given: Sequence[None]) -> None:
    try:
        inspect.signature(function).bind(*given, **config.kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"rewards: {config.function} does not accept its kwargs: {error} (the first parameter "
            "of a reward function is an episode, reward_inputs or data_source)"
        ) from None


def _per_turn(name: str, value: Any, episode: Episode) -> tuple[float, ...]:
    """A reward per turn; a single number counts for the last turn."""
    count = len(episode.turns)
    values = [0.0] * (count - 1) + [value] if np.ndim(value) == 0 else list(value)
    if len(values) != count:
        raise RewardError(f"reward {name!r} returned {len(values)} values for {count} turns")
    return tuple(finite("a value", reward) for reward in values)
