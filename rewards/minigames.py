"""Rewards of the small phone games, one value per turn."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.data.reward_inputs import env_reward, fact
from agentrl.rewards.form import effect
from agentrl.types import Episode

outcome = env_reward
"""What the game itself pays: the change of its `worth` (docs/games.md)."""

format = effect
"""-1 for a reply that is no action, and for an action that changes nothing, else 0.

On a running clock nothing need be changed: there who acts before the next tick does no harm.
"""


def closer(episode: Episode) -> list[float]:
    """For Snake: 1 for a turn that ends nearer to the food than it began, or with it; else 0.

    One that ends farther off costs 1: nothing is earned by going in circles.

    Raises:
        KeyError: there is no `food` in this game.
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
    """Steps from the head to the food."""
    if info["food"] is None:
        return 0.0
    (x, y), (u, v) = info["body"][0], info["food"]
    return float(abs(x - u) + abs(y - v))
