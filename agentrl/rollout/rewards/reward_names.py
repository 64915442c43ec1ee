"""List the names of the built-in reward functions, and recognize those that call a server."""

import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from typing import Any

from agentrl.config import RewardConfig
from agentrl.extension_points import REWARD
from agentrl.user_code import import_module

_PACKAGE = "agentrl.rewards"
_FIRST = ("episode", "reward_inputs", "data_source")
"""Possible names of a reward function's first parameter."""
_SERVERS = (f"{_PACKAGE}.remote:", f"{_PACKAGE}.judge:")


def asks_a_server(rewards: Iterable[RewardConfig]) -> bool:
    """Return whether a reward calls a server, which may not be running before a job starts."""
    return any(REWARD.target(reward.function).startswith(_SERVERS) for reward in rewards)


def reward_targets() -> dict[str, str]:
    """Return `module:function` of each built-in reward function, by `file.function`."""
    found = {
        "env_reward": "agentrl.data.reward_inputs:env_reward",
        "judge": f"{_PACKAGE}.judge:Judge",
        "model": "agentrl.policies.trained_reward:TrainedReward",
    }
    for module in pkgutil.iter_modules(import_module(_PACKAGE).__path__):
        for function in _rewards_in(f"{_PACKAGE}.{module.name}"):
            target = f"{_PACKAGE}.{module.name}:{function}"
            if target not in found.values():
                found[f"{module.name}.{function}"] = target
    return found


def _rewards_in(module: str) -> Iterator[str]:
    for name, member in vars(import_module(module)).items():
        if name.startswith("_") or not _is_reward(member):
            continue
        # Imported functions are listed with the file that defines them, unless renamed here.
        if member.__module__ == module or member.__name__ != name:
            yield name


def _is_reward(member: Any) -> bool:
    # For a class, its instances are called.
    if inspect.isclass(member):
        calls = (vars(kind).get("__call__") for kind in member.__mro__)
        member = next((call for call in calls if call is not None), None)
        skipped = 1
    else:
        skipped = 0
    if not inspect.isfunction(member):
        return False
    names = list(inspect.signature(member).parameters)[skipped:]
    return bool(names) and names[0] in _FIRST
