"""PRIME: Process Reinforcement through IMplicit rEwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import Algorithm, Requires
from agentrl.algorithms.core.statistics import leave_one_out, per_group, returns_to_go
from agentrl.config import AlgorithmConfig, ImplicitRewardConfig

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories


class PRIME(Algorithm):
    """Leave-one-out advantages of the outcome and of an implicit process reward, added (eq. 5).

    A token's implicit reward is beta log(pi_rm / pi_ref), with a reward model trained only on
    outcomes. The mean over the other group members, averaged per episode first, is subtracted from
    each token's reward, and the differences are summed from each token to the end.
    """

    about = "leave-one-out returns plus an implicit process reward that is trained online"
    source = "arXiv:2502.01456"
    formula = "RLOO of R + discounted sum of the remaining (r - mean of the siblings' r)"
    differs = (
        "PRIME's recipe uses n / (n - 1) (r - mean of r over the whole group), and whitens the "
        "sum of both parts"
    )
    compares = "episodes"

    @dataclass(slots=True, kw_only=True)
    class Config(AlgorithmConfig):
        """Settings of the implicit reward model."""

        implicit_reward: ImplicitRewardConfig = field(default_factory=ImplicitRewardConfig)

    config: Config

    @property
    def requires(self) -> Requires:
        return Requires(siblings=True, implicit_reward=self.config.implicit_reward)

    def advantages(self, played: Trajectories) -> Tensor:
        mask, group, valid = played.token_mask, played.group, played.valid
        outcome = per_group(leave_one_out, (played.rewards * mask).sum(-1), group, valid)
        means = (played.implicit * mask).sum(-1) / mask.sum(-1).clamp(min=1)
        # An episode's mean minus its leave-one-out advantage is the mean of the other episodes.
        others = means - per_group(leave_one_out, means, group, valid)
        alone = per_group(lambda own: own.new_full(own.shape, len(own) < 2), means, group, valid)
        process = (played.implicit - others[:, None]).where(alone[:, None] == 0, 0.0)
        discounts = played.discounts(self.config.discount, self.config.token_discount)
        return (outcome[:, None] + returns_to_go(process * mask, mask, discounts)) * mask
