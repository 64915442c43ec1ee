"""Score an episode with the reward functions that the configuration names."""

import asyncio
import functools
import inspect
import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentrl.config import RewardConfig
from agentrl.data.openrlhf import CHATML, QueryFormat
from agentrl.data.reward_inputs import env_reward
from agentrl.errors import ConfigError, RewardError, boundary
from agentrl.extension_points import REWARD
from agentrl.rollout.reward_adapters import (
    OVERALL,
    BatchReward,
    awaited,
    finite,
    inputs_of,
    max_batch_size,
)
from agentrl.rollout.reward_signatures import (
    as_batch,
    check_columns,
    declared_name,
    detect_kind,
    is_called_by_name,
    required_columns,
)
from agentrl.text import list_names
from agentrl.types import Episode, Outcome, ScoredEpisode
from agentrl.worker_threads import Workers

RewardFunction = Callable[..., float | Sequence[float]]
_FLOAT32_MAX = float(np.finfo(np.float32).max)
Component = Callable[[Episode], dict[str, tuple[float, ...]]]
"""Returns the reward per turn under the component's own name, and further values for the record;
nothing if it does not apply to the episode."""


class RewardFunctions:
    """The weighted sum of reward functions; the environment's own reward if none is named.

    Args:
        rewards: the functions. A class is instantiated once with its kwargs, and the object is
            called without them.
        deadline_s: for a batch function to score one episode.
        form: the chat format of the model that plays, for functions that get texts in it.

    Raises:
        ConfigError: a function does not exist, cannot be called, or does not accept its kwargs.
    """

    def __init__(
        self,
        rewards: Sequence[RewardConfig],
        deadline_s: float = 60.0,
        form: QueryFormat = CHATML,
    ) -> None:
        self._components: list[tuple[str, Component, float]] = []
        self._loaded = [load_reward_function(config) for config in rewards]
        for config, reward in zip(rewards, self._loaded, strict=True):
            name = _unique_name(reward.name, [part[0] for part in self._components])
            component = reward.component(name, deadline_s, form)
            self._components.append((name, component, config.weight))
        if not self._components:
            self._components.append(("env_reward", _per_episode("env_reward", env_reward), 1.0))

    @property
    def reads_images(self) -> bool:
        """Whether a function looks at images, so that those of recorded episodes are loaded."""
        return any(reward.reads_images for reward in self._loaded)

    @property
    def accept_at(self) -> float:
        """The total from which an audit counts an episode as accepted, by the first function."""
        return next((reward.accept_at for reward in self._loaded), 0.5)

    def explain(self, episode_id: str) -> str | None:
        """Why an episode was scored as it was, from the first function that knows it."""
        reasons = (one.explain(episode_id) for one in self._loaded if one.explain is not None)
        return next((reason for reason in reasons if reason), None)

    @property
    def require_columns(self) -> bool:
        """Whether a function takes columns of a data set by their names."""
        return any(reward.required_columns for reward in self._loaded)

    @property
    def need_answers(self) -> bool:
        """Whether a function has a signature that is always called with the right answer."""
        return any(reward.needs_answer for reward in self._loaded)

    def check_columns(self, columns: Collection[str], *, has_answers: bool) -> None:
        """Check that a data set has what the functions take.

        Args:
            columns: the names of its columns.
            has_answers: whether its rows have answers.

        Raises:
            ConfigError: it lacks a column, or answers.
        """
        for reward in self._loaded:
            check_columns(reward.name, reward.required_columns, columns)
            if reward.needs_answer and not has_answers:
                raise ConfigError(
                    f"rewards: {reward.name} gets the right answer as ground_truth, and the data "
                    "has none; set the column that holds it: env.kwargs.keys={answer: ...}. It "
                    f"has: {list_names(sorted(columns))}"
                )

    def score(self, episode: Episode) -> ScoredEpisode:
        """All components and their weighted sum; a void episode has no reward.

        Raises:
            RewardError: a function raised, returned something that is not a reward, or none of
                them applies to the episode.
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
            if name in values:
                totals = [t + weight * c for t, c in zip(totals, values[name], strict=True)]
        if not components:
            names = ", ".join(name for name, *_ in self._components)
            raise RewardError(
                f"no reward function applies to this episode: {names} returned None; at least one "
                "must return a reward"
            )
        # The learner computes in float32.
        if not all(abs(total) <= _FLOAT32_MAX for total in (*totals, sum(totals))):
            raise RewardError(f"the rewards {totals} add up to {sum(totals)}: too large")
        return ScoredEpisode(episode=episode, components=components, rewards=tuple(totals))


async def score_or_void(
    score: Callable[[Episode], ScoredEpisode],
    episode: Episode,
    threads: Workers,
    deadline_s: float,
) -> tuple[ScoredEpisode, RewardError | None]:
    """Score an episode in a thread; one that cannot be scored becomes void.

    Args:
        score: may raise RewardError.
        episode: to score.
        threads: one per episode, so that one that hangs is abandoned and delays no other.
        deadline_s: for the reward functions of one episode.

    Returns:
        The episode, and why it could not be scored.
    """
    try:
        async with asyncio.timeout(deadline_s):
            scored = await threads.call(score, episode)
        if episode.final_images:
            scored = replace(scored, episode=replace(scored.episode, final_images=()))
        return scored, None
    except RewardError as error:
        failure = error
    except TimeoutError:
        failure = RewardError(f"no reward within rollout.reward_deadline_s={deadline_s:g} s")
    void = replace(
        episode,
        outcome=Outcome.ENV_ERROR,
        error=f"RewardError: {failure}",
        truncated_by=None,
        final_images=(),
    )
    rewards = (0.0,) * len(episode.turns)
    return ScoredEpisode(episode=void, components={}, rewards=rewards), failure


@dataclass(slots=True, kw_only=True, frozen=True)
class LoadedReward:
    """A configured reward function, bound to its kwargs."""

    name: str
    """Its own, or `REWARD_NAME` of its file."""
    function: Callable[..., Any]
    """Takes an episode, or a list of inputs."""
    is_batch: bool
    required_columns: tuple[str, ...]
    """Columns of a data set that it takes by name."""
    needs_answer: bool
    """Whether it has EasyR1's or veRL's signature, which always has the right answer."""
    max_batch_size: int
    """Maximum number of inputs per call."""
    reads_images: bool
    """Its attribute of that name: whether it looks at the images of an episode."""
    accept_at: float
    """Its attribute of that name: the value from which an audit counts an episode as accepted."""
    explain: Callable[[str], str | None] | None
    """Its method of that name, if any: why it scored the episode with an id as it did."""

    def component(self, name: str, deadline_s: float, form: QueryFormat) -> Component:
        """The function as a component of the reward."""
        if self.is_batch:
            reward = BatchReward(f"reward {name}", self.function, deadline_s, self.max_batch_size)
            return _per_batch(name, reward, form)
        return _per_episode(name, self.function)


def load_reward_function(config: RewardConfig) -> LoadedReward:
    """A configured function, whatever its signature.

    Raises:
        ConfigError: see RewardFunctions.
    """
    loaded = function = REWARD.resolve(config.function)
    if inspect.isclass(function):
        function = _construct(config, function)
    if not callable(function):
        raise ConfigError(f"rewards: {config.function} is not a function")
    kind = detect_kind(config, function)
    try:
        size = max_batch_size(function)
    except ConfigError as error:
        raise ConfigError(f"rewards: {config.function}: {error}") from None
    instance = function
    if function is loaded:
        _check_signature(config, function, kind)
        function = functools.partial(function, **config.kwargs)
    return LoadedReward(
        name=declared_name(loaded) or config.function.rpartition(":")[2],
        function=as_batch(kind, function),
        is_batch=kind != "episode",
        required_columns=required_columns(kind, function),
        needs_answer=kind in ("batch", "sequential", "answer"),
        max_batch_size=size,
        reads_images=bool(getattr(instance, "reads_images", False)),
        accept_at=float(getattr(instance, "accept_at", 0.5)),
        explain=getattr(instance, "explain", None),
    )


def _construct(config: RewardConfig, kind: type) -> Any:
    _check_arguments(config, kind, 0)
    with boundary(ConfigError, f"rewards: {config.function} cannot be constructed"):
        return kind(**config.kwargs)


def _per_batch(name: str, reward: BatchReward, form: QueryFormat) -> Component:
    """`overall` under the function's own name, other components as `NAME/component`."""

    def component(episode: Episode) -> dict[str, tuple[float, ...]]:
        row = reward.score(inputs_of(episode, form))
        before = (0.0,) * (len(episode.turns) - 1)
        return {
            name if key == OVERALL else f"{name}/{key}": (*before, value)
            for key, value in row.items()
        }

    return component


def _per_episode(name: str, function: RewardFunction) -> Component:
    def component(episode: Episode) -> dict[str, tuple[float, ...]]:
        return {name: _per_turn(name, awaited(function(episode)), episode)}

    return component


def _unique_name(stem: str, taken: Sequence[str]) -> str:
    """The function's name; numbered from 2 if other components have it."""
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


def _check_signature(config: RewardConfig, function: Any, kind: str) -> None:
    if is_called_by_name(kind, function):
        try:
            inspect.signature(function).bind_partial(**config.kwargs)
        except TypeError as error:
            raise _wrong_arguments(config, error) from None
    else:
        _check_arguments(config, function, 3 if kind == "answer" else 1)


def _check_arguments(config: RewardConfig, function: Any, count: int) -> None:
    try:
        inspect.signature(function).bind(*(None,) * count, **config.kwargs)
    except (TypeError, ValueError) as error:
        raise _wrong_arguments(config, error) from None


def _wrong_arguments(config: RewardConfig, error: Exception) -> ConfigError:
    return ConfigError(
        f"rewards: {config.function} does not accept its kwargs: {error} (the first parameter of a "
        "reward function is an episode, reward_inputs, reward_input, data_source, completions or "
        "queries)"
    )


def _per_turn(name: str, value: Any, episode: Episode) -> tuple[float, ...]:
    """A reward per turn; a single number counts for the last turn."""
    count = len(episode.turns)
    values = [0.0] * (count - 1) + [value] if np.ndim(value) == 0 else list(value)
    if len(values) != count:
        raise RewardError(f"reward {name!r} returned {len(values)} values for {count} turns")
    return tuple(finite("a value", reward) for reward in values)
