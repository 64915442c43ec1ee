"""SAPO: Soft Adaptive Policy Optimization."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentrl.algorithms.core.kl import log_ratio
from agentrl.algorithms.core.policy_loss import LossInputs, PolicyLoss, TokenLoss
from agentrl.algorithms.grpo import GRPO
from agentrl.config import LossConfig
from agentrl.config.bounds import PositiveFloat


class SAPOLoss(PolicyLoss):
    """-A (4 / tau) sigmoid(tau (r - 1)): a soft gate instead of clipping.

    The gradient equals the plain policy gradient at r = 1 and fades on both sides.
    """

    about = "a soft gate instead of clipping"
    source = "arXiv:2511.20347"
    formula = "-A (4 / tau) sigmoid(tau (r - 1))"
    differs = "same as TRL and verl"

    @dataclass(slots=True, kw_only=True)
    class Config(LossConfig):
        """Temperatures of the gate."""

        tau_positive: PositiveFloat = 1.0
        """Temperature for positive advantages."""
        tau_negative: PositiveFloat = 1.05
        """Temperature for all other advantages."""

    config: Config

    def __call__(self, inputs: LossInputs) -> TokenLoss:
        ratio = log_ratio(inputs.logprobs, inputs.old_logprobs).exp()
        positive = inputs.advantages.new_full((), self.config.tau_positive)
        tau = positive.where(inputs.advantages > 0, self.config.tau_negative)
        loss = -inputs.advantages * 4 / tau * (tau * (ratio - 1)).sigmoid()
        return TokenLoss(loss=loss, clipped=loss.new_zeros(loss.shape).bool())


class SAPO(GRPO):
    """GRPO's advantages with a soft gate."""

    about = "a soft gate instead of clipping"
    source = "arXiv:2511.20347"

    @dataclass(slots=True, kw_only=True)
    class Config(GRPO.Config):
        """Settings with the paper's loss."""

        loss: LossConfig = field(default_factory=lambda: SAPOLoss.Config(name="sapo"))
