"""REINFORCE++."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import Algorithm
from agentrl.algorithms.core.statistics import returns_to_go, whiten

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories


class ReinforcePP(Algorithm):
    """A token's advantage is its return to go, whitened over the batch.

    Tokens that were not sampled neither end nor discount a return, so a turn's return includes the
    rewards of later turns.
    """

    about = "returns whitened over the whole batch; needs no siblings"
    source = "arXiv:2501.03262"
    formula = "white(G)"
    differs = (
        "SkyRL and EasyR1 reset G at tokens that were not sampled, as verl did before 0.9.0; "
        "verl's white(x) is (x - mean) / sqrt(var + 1e-8)"
    )

    def advantages(self, played: Trajectories) -> Tensor:
        discounts = played.discounts(self.config.discount, self.config.token_discount)
        mask = played.token_mask
        return whiten(returns_to_go(played.rewards, mask, discounts), mask)
