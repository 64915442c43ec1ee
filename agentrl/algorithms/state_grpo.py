"""GRPO over states, which compares turns that start from the same state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import Algorithm, Requires
from agentrl.algorithms.core.statistics import per_group, returns_to_go, standardize
from agentrl.algorithms.ppo import PPOLoss
from agentrl.config import AlgorithmConfig, LossConfig

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories


class StateGRPO(Algorithm):
    """A turn's advantage is its return to go, normalized over the group's turns at its state.

    If any turn of the group has no state key, whole episodes are compared instead.
    """

    about = (
        "compares the returns of a group's turns that start from the same state, or of whole "
        "episodes if the environment provides no state keys"
    )
    source = "GiGPO's step-level term (arXiv:2505.10978), with DAPO's clipping"
    formula = "GRPO over the turns from one state, by G"
    differs = "our own variant: only GiGPO's second term"
    compares = "states"
    requires = Requires(siblings=True)

    @dataclass(slots=True, kw_only=True)
    class Config(AlgorithmConfig):
        """Settings with DAPO's clipping."""

        loss: LossConfig = field(default_factory=lambda: PPOLoss.Config(name="ppo", clip_high=0.28))

    def advantages(self, played: Trajectories) -> Tensor:
        nameless = (played.states < 0) & played.turn_mask & played.valid[:, None]
        falls_back = (played.group[:, None] == played.group[nameless.any(-1)]).any(-1)
        episodes = per_group(standardize, played.returns, played.group, played.valid)
        states = played.to_tokens(state_advantages(played, self.config.discount))
        return played.to_tokens(episodes).where(falls_back[:, None], states)


def state_advantages(played: Trajectories, discount: float) -> Tensor:
    """Return [E, T], each turn's return to go, normalized over its group's turns at its state.

    The only turn at a state, and turns without a state key, get 0.

    Args:
        played: the episodes of a step.
        discount: discount per turn.
    """
    mask, states = played.turn_mask, played.states
    to_go = returns_to_go(played.turn_rewards, mask, discount)
    has_state = mask & played.valid[:, None] & (states >= 0)
    if not has_state.any():
        return to_go.new_zeros(to_go.shape)
    # State numbers are unique only within a group: combine them with the group number.
    state = played.group[:, None] * (states.max() + 1) + states
    return per_group(standardize, to_go, state, has_state)
