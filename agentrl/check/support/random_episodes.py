"""Play an environment with seeded random actions, and compare two such episodes."""

import math
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentrl.actions.translator import Translator
from agentrl.check.support.open_env import open_env
from agentrl.config import EnvConfig
from agentrl.rollout.environments.env_calls import reset_env, step_env
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.types import Observation

SEED = 7


@dataclass(slots=True, kw_only=True)
class RandomEpisode:
    """Everything that an environment returned in some steps."""

    space: Any = None
    """The observation space."""
    observations: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    infos: list[Mapping[str, Any]] = field(default_factory=list)
    translated: list[Observation] = field(default_factory=list)
    ends: list[bool] = field(default_factory=list)
    made_ms: float = 0.0
    reset_ms: float = 0.0
    step_ms: list[float] = field(default_factory=list)


def first_observations(config: EnvConfig, seeds: Sequence[int], end: float) -> list[Any]:
    """Return the first observations of at least two seeds; start no other reset after `end`."""
    found: list[Any] = []
    with open_env(config) as instance:
        for seed in seeds:
            if len(found) < 2 or time.monotonic() < end:
                found.append(reset_env(instance, seed)[0])
    return found


def play_randomly(config: EnvConfig, steps: int, end: float = math.inf) -> RandomEpisode:
    """Play with random actions, the same each time.

    Args:
        config: the environment.
        steps: maximum number of steps.
        end: time (`time.monotonic`) after which no step but the first begins.
    """
    translator = open_translator(resolve_env(config))
    played = RandomEpisode()
    begun = time.perf_counter()
    with open_env(config, getattr(translator, "render_mode", None)) as instance:
        played.made_ms = 1000 * (time.perf_counter() - begun)
        if (attach_env := getattr(translator, "attach_env", None)) is not None:
            attach_env(instance)
        # Instances of a class may share a space, including its random generator.
        actions = deepcopy(instance.action_space)
        actions.seed(SEED)
        started = time.perf_counter()
        observation, info = reset_env(instance, SEED)
        played.reset_ms = 1000 * (time.perf_counter() - started)
        played.space = instance.observation_space
        _append(played, translator, observation, info)
        for step in range(steps):
            if step and time.monotonic() > end:
                break
            started = time.perf_counter()
            observation, reward, terminated, truncated, info = step_env(instance, actions.sample())
            played.step_ms.append(1000 * (time.perf_counter() - started))
            _append(played, translator, observation, info)
            played.rewards.append(float(reward))
            played.ends.append(bool(terminated or truncated))
            if terminated or truncated:
                break
    return played


def _append(
    played: RandomEpisode,
    translator: Translator,
    observation: Any,
    info: Mapping[str, Any],
) -> None:
    played.observations.append(observation)
    played.infos.append(dict(info))
    played.translated.append(translator.to_observation(observation, info))


def difference(one: RandomEpisode, other: RandomEpisode) -> str:
    """Describe the first difference between two episodes; empty if they are equal."""
    for step, (a, b) in enumerate(zip(one.observations, other.observations, strict=False)):
        if not equal_values(a, b):
            return f"in the observation at step {step}"
    if not equal_values(one.rewards, other.rewards):
        return "in their rewards"
    return "in where they end" if one.ends != other.ends else ""


def equal_values(a: Any, b: Any) -> bool:
    """Return whether two values are equal, including nested arrays; NaN equals NaN."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(equal_values(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(equal_values, a, b))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b, equal_nan=np.issubdtype(np.asarray(a).dtype, np.floating))
    return bool(a == b) or (a != a and b != b)
