"""Potential-based shaping, for environments that know the distance to the goal."""

import itertools
from collections.abc import Mapping
from typing import Any

from agentrl.data.reward_inputs import fact
from agentrl.types import Episode, Outcome


def potential(
    episode: Episode, key: str = "distance", scale: float = 1.0, discount: float = 1.0
) -> list[float]:
    """Return discount * phi(after) - phi(before) for each turn, where phi = -scale * distance.

    Such a reward leaves the optimal policy unchanged (A. Ng, D. Harada, S. Russell, 1999) if
    `discount` is that of the returns, `algorithm.discount`, and the end of an episode has the
    potential 0. An episode that reached a limit did not end in that sense, so it keeps its last
    potential. The total is recorded and summarized as a component of its own, `reward/potential`,
    beside the environment's, `reward/env_reward`.

    From a turn to the end of an episode, these rewards add up to minus the potential before the
    turn. So they cancel where turns of the same state are compared (`state_grpo`), or episodes of a
    group; they help where turns of different states are compared (`turn_grpo`) or a critic learns.

    Args:
        episode: its environment's `info` has the distance to the goal, at least 0.
        key: name of the distance in `info`.
        scale: potential lost per unit of distance.
        discount: the discount of later rewards per turn.

    Raises:
        KeyError: `info` has no such distance.
    """
    infos = [episode.reset_info, *(turn.info for turn in episode.turns)]
    potentials = [-scale * _distance(episode, info, key) for info in infos]
    if episode.outcome is Outcome.TERMINATED:
        potentials[-1] = 0.0
    return [discount * after - before for before, after in itertools.pairwise(potentials)]


def _distance(episode: Episode, info: Mapping[str, Any], key: str) -> float:
    return float(fact(episode, info, key))
