"""Rewards of the minigames, one value per turn."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.data.reward_inputs import env_reward, fact
from agentrl.rewards.form import effect
from agentrl.types import Episode

outcome = env_reward
"""The environment's own reward: the change of `worth` (docs/games.md)."""

format = effect
"""-1 for a reply without an action and for an action without effect, else 0.

On a running clock an action without effect costs nothing: acting before the next tick is fine.
"""


def closer(episode: Episode) -> list[float]:
    """Reward Snake: 1 for a turn closer to the food or eating it, -1 for moving away, else 0.

    Moving away costs as much as moving closer earns, so going in circles earns nothing.

    Raises:
        KeyError: `info` has no `food`.
    """
    infos = [episode.reset_info, *(turn.info for turn in episode.turns)]
    for info in infos:
        fact(episode, info, "food")
    return [
        1.0
        if after["score"] > before["score"]
        else float(np.sign(_distance(before) - _distance(after)))
        for before, after in itertools.pairwise(infos)
    ]


def _distance(info: Mapping[str, Any]) -> float:
    """Return the number of steps from the head to the food."""
    if info["food"] is None:
        return 0.0
    (x, y), (u, v) = info["body"][0], info["food"]
    return float(abs(x - u) + abs(y - v))
