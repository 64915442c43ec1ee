"""Load a configured reward function, in the process that calls it."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.errors import ConfigError, boundary
from agentrl.extension_points import REWARD
from agentrl.rollout.rewards.other_trainer_signatures import (
    SIGNATURES,
    check_signature,
    declared_name,
    detect_kind,
    is_factory,
    required_columns,
    wrong_arguments,
)
from agentrl.rollout.rewards.reward_calls import RewardSpec, max_batch_size


@dataclass(slots=True, kw_only=True, frozen=True)
class RewardInfo:
    """Properties of a loaded reward function."""

    name: str
    """The function's name, or `REWARD_NAME` of its file; numbered if already taken."""
    is_batch: bool
    """Whether the function takes a list of inputs instead of an episode."""
    overlaps: bool
    """Whether calls can overlap: the function takes an episode and is asynchronous."""
    is_shared: bool
    """Whether all episodes must reach the same copy of the function, as it may keep state."""
    max_batch_size: int
    """Maximum number of inputs per call."""
    required_columns: tuple[str, ...]
    """Data set columns that the function takes by name."""
    needs_answer: bool
    """Whether the signature is EasyR1's or veRL's, which always includes the right answer."""
    reads_images: bool
    """The function's attribute `reads_images`: whether it needs images of recorded episodes."""
    accept_at: float
    """The function's attribute `accept_at`: the score at which an audit counts an episode as
    accepted."""


@dataclass(slots=True, kw_only=True, frozen=True)
class LoadedReward:
    """A configured reward function, bound to its kwargs."""

    info: RewardInfo
    function: Callable[..., Any]
    """Takes an episode, or a list of inputs."""
    explain: Callable[[str], str | None] | None
    """The function's method `explain`, if any, which returns why an episode got its score."""


def load_rewards(specs: Sequence[RewardSpec]) -> list[LoadedReward]:
    """Return all functions under unique names.

    Raises:
        ConfigError: a function cannot be loaded.
    """
    rewards: list[LoadedReward] = []
    for spec in specs:
        if spec.function.startswith("__main__:"):
            raise ConfigError(
                f"rewards: {spec.function}: reward functions run in a separate process, which does "
                "not run your script; name the function's file, as in path/file.py:"
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
    """Return a configured function, whatever its signature.

    A class is instantiated with its kwargs. A function is called if the kwargs bind all of its
    parameters, as it must then return the reward function.

    Raises:
        ConfigError: the function does not exist, cannot be called, or does not accept its kwargs.
    """
    loaded = function = REWARD.resolve(spec.function)
    if inspect.isclass(function):
        try:
            inspect.signature(function).bind(**spec.kwargs)
        except (TypeError, ValueError) as error:
            raise wrong_arguments(spec, error) from None
    if inspect.isclass(function) or is_factory(function, spec.kwargs):
        with boundary(ConfigError, f"rewards: {spec.function} cannot be constructed"):
            function = function(**spec.kwargs)
    if not callable(function):
        raise ConfigError(f"rewards: {spec.function} is not a function")
    try:
        inspect.signature(function)
    # C functions may have no signature.
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"rewards: {spec.function}: {error}; wrap it in a Python function"
        ) from None
    kind = detect_kind(spec, function)
    try:
        size = max_batch_size(function)
    except ConfigError as error:
        raise ConfigError(f"rewards: {spec.function}: {error}") from None
    instance = function
    if function is loaded:
        check_signature(spec, function, kind)
        function = functools.partial(function, **spec.kwargs)
    is_plain = function is not instance and inspect.isroutine(instance)
    call = instance if inspect.isroutine(instance) else type(instance).__call__
    signature = SIGNATURES.get(kind)
    # A function of one episode is called for one at a time, to know which episode hangs.
    for_one = signature is None or signature.for_one
    info = RewardInfo(
        name=name or own_name(spec),
        is_batch=signature is not None,
        overlaps=signature is None and inspect.iscoroutinefunction(call),
        is_shared=not is_plain or not for_one,
        max_batch_size=1 if for_one else size,
        required_columns=required_columns(kind, function),
        needs_answer=signature is not None and signature.has_answer,
        reads_images=bool(getattr(instance, "reads_images", False)),
        accept_at=float(getattr(instance, "accept_at", 0.5)),
    )
    called = function if signature is None else signature.adapt(function)
    return LoadedReward(info=info, function=called, explain=getattr(instance, "explain", None))


def own_name(spec: RewardSpec) -> str:
    """Return `REWARD_NAME` of the function's file, or else the configured name."""
    return declared_name(REWARD.resolve(spec.function)) or spec.function.rpartition(":")[2]
