"""GiGPO: Group-in-Group Policy Optimization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import Algorithm, Requires
from agentrl.algorithms.core.statistics import per_group, standardize
from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.state_grpo import state_advantages
from agentrl.config.bounds import NonNegativeFloat

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories


class GiGPO(Algorithm):
    """A weighted sum of the episode's advantage and the turn's advantage at its state.

    The turn's advantage is its discounted return to go, normalized over the group's turns that
    start from the same state; 0 if no other turn starts there. In the episode's advantage, each
    return counts once, however many turns the episode has.
    """

    about = "GRPO over whole episodes plus GRPO over turns that start from the same state"
    source = "arXiv:2505.10978"
    formula = "`episode_weight` GRPO of R + `state_weight` GRPO of G over turns at the same state"
    differs = (
        "by default, verl-agent does not divide by the standard deviation, averages over all "
        "steps instead of episodes, and compares states by exact pixels, so a changed clock in "
        "the status bar makes a different state"
    )
    compares = "states"
    requires = Requires(siblings=True, state_keys=True)

    @dataclass(slots=True, kw_only=True)
    class Config(GRPO.Config):
        """Weights of the two terms, and the discount of the second."""

        discount: float = 0.95
        episode_weight: NonNegativeFloat = 1.0
        """Weight of the whole episode's advantage."""
        state_weight: NonNegativeFloat = 1.0
        """Weight of the advantage among turns that start from the same state."""

    config: Config

    def advantages(self, played: Trajectories) -> Tensor:
        episodes = per_group(standardize, played.returns, played.group, played.valid)
        states = state_advantages(played, self.config.discount)
        # Every turn of an episode gets the episode's advantage.
        both = self.config.episode_weight * episodes[:, None] + self.config.state_weight * states
        return played.to_tokens(both * played.turn_mask)
