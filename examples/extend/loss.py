"""A policy loss in one file: Simple Policy Optimization (arXiv:2401.16025).

PPO ignores a token as soon as its probability ratio leaves the clipping range. Here a quadratic
penalty pulls the ratio back instead: r = 1 + epsilon sign(A) minimizes the loss of a token.

    agentrl check loss examples/extend/loss.py:SimplePolicyLoss
    agentrl train number_game algorithm.loss=examples/extend/loss.py:SimplePolicyLoss
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt

from agentrl.algorithms.core.kl import log_ratio
from agentrl.algorithms.core.policy_loss import LossInputs, PolicyLoss, TokenLoss
from agentrl.config import LossConfig


class SimplePolicyLoss(PolicyLoss):
    """-A r + |A| (r - 1)^2 / (2 epsilon)."""

    about = "a quadratic penalty on the probability ratio instead of clipping"
    source = "arXiv:2401.16025"
    formula = "-A r + abs(A) (r - 1)^2 / (2 epsilon)"

    @dataclass(slots=True, kw_only=True)
    class Config(LossConfig):
        epsilon: Annotated[float, Gt(0)] = 0.2
        """Distance from 1 of the probability ratio that minimizes a token's loss."""

    config: Config

    def __call__(self, inputs: LossInputs) -> TokenLoss:
        ratio = log_ratio(inputs.logprobs, inputs.old_logprobs).exp()
        penalty = inputs.advantages.abs() * (ratio - 1).square() / (2 * self.config.epsilon)
        loss = penalty - inputs.advantages * ratio
        return TokenLoss(loss=loss, clipped=loss.new_zeros(loss.shape).bool())
