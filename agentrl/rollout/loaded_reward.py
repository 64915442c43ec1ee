"""Load a reward function that the configuration names; done in the process that calls it."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.errors import ConfigError, boundary
from agentrl.extension_points import REWARD
from agentrl.rollout.reward_adapters import BatchFunction, max_batch_size
from agentrl.rollout.reward_signatures import (
    RewardSpec,
    as_batch,
    declared_name,
    detect_kind,
    is_called_by_name,
    is_factory,
    required_columns,
)


@dataclass(slots=True, kw_only=True, frozen=True)
class RewardInfo:
    """Properties of a loaded reward function."""

    name: str
    """The function's name, or `REWARD_NAME` of its file; numbered if another one has it."""
    is_batch: bool
    """Whether it takes a list of inputs; else it takes an episode."""
    overlaps: bool
    """Whether it takes an episode and is asynchronous, so that several calls overlap."""
    is_shared: bool
    """Whether all episodes must reach the same copy of it, because it may keep state."""
    max_batch_size: int
    """Maximum number of inputs per call."""
    required_columns: tuple[str, ...]
    """Columns of a data set that it takes by name."""
    needs_answer: bool
    """Whether it has EasyR1's or veRL's signature, which always has the right answer."""
    reads_images: bool
    """The attribute of that name: whether the function looks at images of recorded episodes."""
    accept_at: float
    """The attribute of that name: the value from which an audit counts an episode as accepted."""


@dataclass(slots=True, kw_only=True, frozen=True)
class LoadedReward:
    """A configured reward function, bound to its kwargs."""

    info: RewardInfo
    function: Callable[..., Any]
    """Takes an episode, or a list of inputs."""
    explain: Callable[[str], str | None] | None
    """The function's method of that name, if any, which says why it scored an episode as it did."""


def load_rewards(specs: Sequence[RewardSpec]) -> list[LoadedReward]:
    """All functions, each under a name of its own.

    Raises:
        ConfigError: one of them cannot be loaded.
    """
    rewards: list[LoadedReward] = []
    for spec in specs:
        if spec.function.startswith("__main__:"):
            raise ConfigError(
                f"rewards: {spec.function}: reward functions run in a process of their own, which "
                "does not run your script; name the function's file: path/file.py:"
                f"{spec.function.partition(':')[2]}"
            )
        stem, number = own_name(spec), 1
        name = stem
        while name in [reward.info.name for reward in rewards]:
            number += 1
            name = f"{stem}-{number}"
        rewards.append(load_reward_function(spec, name))
    return rewards


def load_reward_function(spec: RewardSpec, name: str | None = None) -> LoadedReward:
    """A configured function, whatever its signature.

    A class is instantiated with its kwargs, and a function that they complete is called, as it
    must return the reward function.

    Args:
        spec: the configuration.
        name: in place of its own name.

    Raises:
        ConfigError: it does not exist, cannot be called, or does not accept its kwargs.
    """
    loaded = function = REWARD.resolve(spec.function)
    if inspect.isclass(function):
        _check_arguments(spec, function, 0)
    if inspect.isclass(function) or is_factory(function, spec.kwargs):
        with boundary(ConfigError, f"rewards: {spec.function} cannot be constructed"):
            function = function(**spec.kwargs)
    if not callable(function):
        raise ConfigError(f"rewards: {spec.function} is not a function")
    _check_has_signature(spec, function)
    kind = detect_kind(spec, function)
    try:
        size = max_batch_size(function)
    except ConfigError as error:
        raise ConfigError(f"rewards: {spec.function}: {error}") from None
    instance = function
    if function is loaded:
        _check_signature(spec, function, kind)
        function = functools.partial(function, **spec.kwargs)
    is_plain = function is not instance and inspect.isroutine(instance)
    info = RewardInfo(
        name=name or own_name(spec),
        is_batch=kind != "episode",
        overlaps=kind == "episode" and _is_async(instance),
        is_shared=not is_plain or kind not in ("episode", "sequential", "answer"),
        # A function of one episode is called for each alone, so that it is known which one hangs.
        max_batch_size=1 if kind in ("episode", "sequential", "answer") else size,
        required_columns=required_columns(kind, function),
        needs_answer=kind in ("batch", "sequential", "answer", "answers"),
        reads_images=bool(getattr(instance, "reads_images", False)),
        accept_at=float(getattr(instance, "accept_at", 0.5)),
    )
    batch: BatchFunction | Callable[..., Any] = as_batch(kind, function)
    return LoadedReward(info=info, function=batch, explain=getattr(instance, "explain", None))


def own_name(spec: RewardSpec) -> str:
    """`REWARD_NAME` of the function's file, or else the name that the configuration uses."""
    return declared_name(REWARD.resolve(spec.function)) or spec.function.rpartition(":")[2]


def _is_async(function: Any) -> bool:
    call = function if inspect.isroutine(function) else type(function).__call__
    return inspect.iscoroutinefunction(call)


def _check_has_signature(spec: RewardSpec, function: Any) -> None:
    try:
        inspect.signature(function)
    except (TypeError, ValueError) as error:  # of a function in C
        raise ConfigError(
            f"rewards: {spec.function}: {error}; call it in a function of your own"
        ) from None


def _check_signature(spec: RewardSpec, function: Any, kind: str) -> None:
    if is_called_by_name(kind, function):
        try:
            inspect.signature(function).bind_partial(**spec.kwargs)
        except TypeError as error:
            raise _wrong_arguments(spec, error) from None
    else:
        _check_arguments(spec, function, {"answer": 3, "answers": 4}.get(kind, 1))


def _check_arguments(spec: RewardSpec, function: Any, count: int) -> None:
    try:
        inspect.signature(function).bind(*(None,) * count, **spec.kwargs)
    except (TypeError, ValueError) as error:
        raise _wrong_arguments(spec, error) from None


def _wrong_arguments(spec: RewardSpec, error: Exception) -> ConfigError:
    return ConfigError(
        f"rewards: {spec.function} does not accept its kwargs: {error} (the first parameter of a "
        "reward function is an episode, reward_inputs, reward_input, data_source, data_sources, "
        "completions or queries)"
    )
