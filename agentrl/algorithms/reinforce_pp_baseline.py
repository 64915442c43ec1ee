"""REINFORCE++ with the group's mean as baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import Algorithm, Requires
from agentrl.algorithms.core.statistics import center, per_group, whiten

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories


class ReinforcePPBaseline(Algorithm):
    """A token's advantage is its episode's return minus the group mean, whitened over the batch."""

    about = "returns minus the group's mean, then whitened over the whole batch"
    source = "arXiv:2501.03262"
    formula = "white(R - mean)"
    differs = "the advantage in a group of one is white(R) in verl"
    compares = "episodes"
    requires = Requires(siblings=True)

    def advantages(self, played: Trajectories) -> Tensor:
        centered = per_group(center, played.returns, played.group, played.valid)
        return whiten(played.to_tokens(centered), played.token_mask)
