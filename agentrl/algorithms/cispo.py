"""CISPO: Clipped Importance Sampling-weight Policy Optimization."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentrl.algorithms.core.kl import log_ratio
from agentrl.algorithms.core.policy_loss import LossInputs, PolicyLoss, TokenLoss
from agentrl.algorithms.grpo import GRPO
from agentrl.config import AlgorithmConfig, LossConfig
from agentrl.config.bounds import NonNegativeFloat


class CISPOLoss(PolicyLoss):
    """-sg[clip(r, 1 - low, 1 + high)] A logp: clips the ratio but keeps every token's gradient."""

    about = "clips the importance weight of a token, but keeps its gradient"
    source = "arXiv:2506.13585"
    formula = "-sg[clip(r)] A logp"
    differs = "same as verl; TRL clips only above, at `epsilon_high` instead of 1 + `epsilon_high`"

    @dataclass(slots=True, kw_only=True)
    class Config(LossConfig):
        """Clipping of the importance weight."""

        clip_low: NonNegativeFloat = 1.0
        """The weight is clipped below at `1 - clip_low`."""
        clip_high: NonNegativeFloat = 4.0
        """The weight is clipped above at `1 + clip_high`."""

    config: Config

    def __call__(self, inputs: LossInputs) -> TokenLoss:
        # Detach, because the weight scales the gradient of log pi but must not contribute one.
        ratio = log_ratio(inputs.logprobs, inputs.old_logprobs).exp().detach()
        weight = ratio.clamp(1 - self.config.clip_low, 1 + self.config.clip_high)
        return TokenLoss(
            loss=-weight * inputs.advantages * inputs.logprobs, clipped=weight != ratio
        )


class CISPO(GRPO):
    """GRPO's advantages with clipped importance weights, averaged over tokens."""

    about = "clips the importance weight of a token, but keeps its gradient"
    source = "arXiv:2506.13585"

    @dataclass(slots=True, kw_only=True)
    class Config(AlgorithmConfig):
        """Settings with the paper's loss."""

        loss: LossConfig = field(default_factory=lambda: CISPOLoss.Config(name="cispo"))
