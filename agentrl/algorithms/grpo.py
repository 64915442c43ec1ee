"""GRPO: Group Relative Policy Optimization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import Algorithm, Requires
from agentrl.algorithms.core.statistics import per_group, standardize
from agentrl.config import Aggregate, AlgorithmConfig

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories


class GRPO(Algorithm):
    """An episode's advantage is its return, normalized over its group (section 4.1)."""

    about = "normalizes each episode's return by its group's mean and standard deviation"
    source = "arXiv:2402.03300"
    formula = "(R - mean) / (std + 1e-6)"
    differs = "TRL adds 1e-4; the advantage in a group of one is R in verl, 0 in TRL and here"
    compares = "episodes"
    requires = Requires(siblings=True)

    @dataclass(slots=True, kw_only=True)
    class Config(AlgorithmConfig):
        """Loss averaged over each episode's tokens, then over episodes."""

        aggregate: Aggregate = "sequence_mean"

    def advantages(self, played: Trajectories) -> Tensor:
        return played.to_tokens(per_group(standardize, played.returns, played.group, played.valid))
