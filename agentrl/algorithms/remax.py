"""ReMax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import Algorithm, Requires
from agentrl.algorithms.core.statistics import returns_to_go

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories


class ReMax(Algorithm):
    """A token's advantage is its return to go minus the greedy policy's return on the same seed."""

    about = "returns minus the greedy policy's return on the same seed"
    source = "arXiv:2310.10505"
    formula = "G - R of the greedy policy"
    differs = "verl does not discount"
    requires = Requires(greedy=True)

    def advantages(self, played: Trajectories) -> Tensor:
        discounts = played.discounts(self.config.discount, self.config.token_discount)
        mask = played.token_mask
        return (returns_to_go(played.rewards, mask, discounts) - played.greedy[:, None]) * mask
