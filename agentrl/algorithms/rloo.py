"""RLOO: REINFORCE Leave-One-Out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import Algorithm, Requires
from agentrl.algorithms.core.statistics import leave_one_out, per_group

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories


class RLOO(Algorithm):
    """An episode's advantage is its return minus the mean return of the other group members."""

    about = "leave-one-out: each episode's return minus the mean of its siblings'"
    source = "arXiv:2402.14740"
    formula = "n / (n - 1) (R - mean)"
    differs = "the advantage in a group of one is R in verl, 0 in TRL and here"
    compares = "episodes"
    requires = Requires(siblings=True)

    def advantages(self, played: Trajectories) -> Tensor:
        return played.to_tokens(
            per_group(leave_one_out, played.returns, played.group, played.valid)
        )
