"""Trajectories written as small tables."""

import torch
from torch import Tensor

from agentrl.algorithms.core.advantages import compute_advantages
from agentrl.algorithms.core.algorithm import load_algorithm
from agentrl.algorithms.core.trajectories import Trajectories
from agentrl.config import algorithm_config


def numbers(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def played(
    rewards: Tensor,
    *,
    mask: Tensor | None = None,
    turn: Tensor | None = None,
    group: list[int] | None = None,
    valid: list[bool] | None = None,
    states: Tensor | None = None,
    values: Tensor | None = None,
    last_values: Tensor | None = None,
    implicit: Tensor | None = None,
    teacher: Tensor | None = None,
    greedy: Tensor | None = None,
    function_rewards: Tensor | None = None,
    function_weights: Tensor | None = None,
) -> Trajectories:
    """Episodes from the rewards of their tokens; each token is a turn unless `turn` is given."""
    size, width = rewards.shape
    mask = torch.ones_like(rewards, dtype=torch.bool) if mask is None else mask
    turn = torch.arange(width).expand(size, width) if turn is None else turn
    turns = int(turn.max()) + 1
    zeros = torch.zeros_like(rewards)
    of_function = (rewards * mask).sum(1, keepdim=True)
    if function_rewards is not None:
        of_function = function_rewards
    is_valid = torch.tensor(valid or [True] * size)
    of_turns = torch.zeros(size, turns, dtype=torch.float64)
    return Trajectories(
        group=torch.tensor(group or [0] * size),
        valid=is_valid,
        turn_mask=of_turns.scatter_add(1, turn, mask.double()) > 0,
        turn_rewards=of_turns.scatter_add(1, turn, rewards * mask),
        states=torch.full((size, turns), -1) if states is None else states,
        token_mask=mask & is_valid[:, None],
        turn_index=turn,
        rewards=rewards,
        values=zeros if values is None else values,
        last_values=zeros[:, 0] if last_values is None else last_values,
        implicit=zeros if implicit is None else implicit,
        teacher=zeros if teacher is None else teacher,
        greedy=zeros[:, 0] if greedy is None else greedy,
        function_rewards=of_function,
        function_weights=(
            torch.ones_like(of_function) if function_weights is None else function_weights
        ),
    )


def result_of(episodes: Trajectories, name: str, **settings: object):
    """What an algorithm computes, not whitened unless that is part of the estimator."""
    algorithm = load_algorithm(algorithm_config(name, **{"whiten": False, **settings}))
    return compute_advantages(episodes, algorithm)


def advantages_of(episodes: Trajectories, name: str, **settings: object) -> Tensor:
    return result_of(episodes, name, **settings).advantages
