"""Rewards of the small phone games, one value per turn."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.types import Episode


def outcome(episode: Episode) -> list[float]:
    """What the game itself pays: the change of its `worth` (docs/games.md)."""
    return [turn.env_reward for turn in episode.turns]


def format(episode: Episode) -> list[float]:
    """-1 for a reply that is no action, and for an action that changes nothing, else 0.

    On a running clock nothing need be changed: there who acts before the next tick does no harm.
    """
    return [
        -1.0 if turn.parse_error is not None or _is_vain(turn.info) else 0.0
        for turn in episode.turns
    ]


def closer(episode: Episode) -> list[float]:
    """For Snake: 1 for a turn that ends nearer to the food than it began, or with it; else 0.

    One that ends farther off costs 1: nothing is earned by going in circles.
    """
    infos = [episode.reset_info, *(turn.info for turn in episode.turns)]
    return [
        1.0
        if after["score"] > before["score"]
        else float(np.sign(_distance(before) - _distance(after)))
        for before, after in itertools.pairwise(infos)
    ]


def _is_vain(info: Mapping[str, Any]) -> bool:
    return not info.get("changed", True) and info.get("clock") != "running"


def _distance(info: Mapping[str, Any]) -> float:
    """Steps from the head to the food."""
    if info["food"] is None:
        return 0.0
    (x, y), (u, v) = info["body"][0], info["food"]
    return float(abs(x - u) + abs(y - v))
