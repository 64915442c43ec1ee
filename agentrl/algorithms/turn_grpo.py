"""GRPO over turns, which compares every turn with all turns of its group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import Algorithm
from agentrl.algorithms.core.statistics import per_group, returns_to_go, standardize
from agentrl.algorithms.ppo import PPOLoss
from agentrl.config import AlgorithmConfig, LossConfig

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories


class TurnGRPO(Algorithm):
    """A turn's advantage is its return to go, normalized over all turns of the group.

    This needs no matching states, but a turn in a promising state gets a high advantage even if its
    action is bad. With immediate rewards and a discount well below 1, this hardly matters. Turns
    are also compared with other turns of their own episode, so a single episode suffices.
    """

    about = "compares each turn's return to go with those of all turns in its group"
    source = "REINFORCE++'s returns per turn (arXiv:2501.03262), with DAPO's clipping"
    formula = "GRPO over all turns of the group, by G"
    differs = "ours"
    compares = "turns"

    @dataclass(slots=True, kw_only=True)
    class Config(AlgorithmConfig):
        """Settings with DAPO's clipping."""

        loss: LossConfig = field(default_factory=lambda: PPOLoss.Config(name="ppo", clip_high=0.28))

    def advantages(self, played: Trajectories) -> Tensor:
        mask, valid = played.turn_mask, played.valid[:, None]
        to_go = returns_to_go(played.turn_rewards, mask, self.config.discount)
        # The group's members are turns, regardless of their episode.
        group = played.group[:, None].expand_as(mask)
        return played.to_tokens(per_group(standardize, to_go, group, mask & valid))
