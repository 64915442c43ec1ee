"""GDPO: Group reward-Decoupled normalization Policy Optimization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import Algorithm, Requires
from agentrl.algorithms.core.statistics import per_group, rescale, standardize
from agentrl.algorithms.grpo import GRPO
from agentrl.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories


class GDPO(Algorithm):
    """An episode's advantage is the weighted sum of its advantages for each reward function.

    Each is normalized over the group, and their sum over the step (equations 4 to 6). A function
    with small rewards therefore counts as much as one with large rewards, and episodes that reach
    the same total in different ways have different advantages.
    """

    about = "normalizes the rewards of each function over the group before they are added"
    source = "arXiv:2601.05242"
    formula = "S / (std of S over the step + 1e-6), S = sum of `weight` (R_f - mean) / (std + 1e-6)"
    differs = (
        "TRL (`multi_objective_aggregation: normalize_then_sum`) adds 1e-4 to both std; verl "
        "whitens S over tokens, so longer episodes weigh more, and takes the functions from the "
        "keys of one; a function's advantage in a group of one is R_f in verl"
    )
    compares = "episodes"
    requires = Requires(siblings=True, reward_functions=True)

    @dataclass(slots=True, kw_only=True)
    class Config(GRPO.Config):
        """Settings of GRPO, without a KL penalty in the reward."""

        def validate_for_training(self) -> None:
            """Raise `ConfigError` if settings have no effect or contradict each other."""
            GRPO.Config.validate_for_training(self)
            if self.kl.add_to == "reward":
                raise ConfigError(
                    f"algorithm.kl.add_to=reward: {self.name} normalizes each reward function, and "
                    "the KL penalty is none of them; set algorithm.kl.add_to=loss"
                )

    def advantages(self, played: Trajectories) -> Tensor:
        total = played.returns.new_zeros(played.returns.shape)
        functions = zip(played.function_rewards.T, played.function_weights.T, strict=True)
        for rewards, weights in functions:
            valid = played.valid & (weights != 0)
            total += weights * per_group(standardize, rewards, played.group, valid)
        # The mean over the step is 0 already. Subtracting it would leave rounding errors in groups
        # whose advantages are 0.
        total[played.valid] = rescale(total[played.valid])
        return played.to_tokens(total)
