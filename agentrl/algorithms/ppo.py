"""PPO: Proximal Policy Optimization, with a critic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import AdvantageResult, Algorithm, Requires
from agentrl.algorithms.core.kl import log_ratio
from agentrl.algorithms.core.policy_loss import LossInputs, PolicyLoss, TokenLoss
from agentrl.config import AlgorithmConfig, CriticConfig, LossConfig
from agentrl.config.bounds import Fraction, NonNegativeFloat
from agentrl.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories


class PPO(Algorithm):
    """Generalized advantage estimation over the sampled tokens, then whitened.

    After a truncated episode, the critic's value replaces the missing rewards; after a terminated
    episode, it is not used.
    """

    about = "generalized advantage estimation over tokens, with a critic"
    source = "arXiv:1707.06347, arXiv:1506.02438"
    formula = "delta + gamma lambda A', skipping tokens that were not sampled"
    differs = "verl also skips them, but uses V = 0 after a truncated episode"

    @dataclass(slots=True, kw_only=True)
    class Config(AlgorithmConfig):
        """The critic, and the lambda of GAE."""

        whiten: bool = True
        gae_lambda: Fraction = 1.0
        """GAE's lambda from token to token."""
        critic: CriticConfig = field(default_factory=CriticConfig)

    config: Config

    @property
    def requires(self) -> Requires:
        return Requires(critic=self.config.critic)

    def advantages(self, played: Trajectories) -> AdvantageResult:
        advantages, returns = gae(
            played.rewards,
            played.values,
            played.token_mask,
            played.last_values,
            played.discounts(self.config.discount, self.config.token_discount),
            self.config.gae_lambda,
        )
        return AdvantageResult(advantages=advantages, returns=returns)


def gae(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    last_values: Tensor,
    discount: Tensor | float = 1.0,
    lam: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Generalized advantage estimation over the sampled tokens.

    delta_t = r_t + discount V_(t+1) - V_t and A_t = delta_t + discount lam A_(t+1). Both V and A
    are carried across positions outside the mask.

    Source: arXiv:1506.02438.

    Args:
        rewards: [E, N], reward of each token.
        values: [E, N], value of the state before each token.
        mask: bool[E, N]
        last_values: [E], value of the state after the last token: 0 if the episode terminated, the
            critic's value if it was truncated.
        discount: a number, or a tensor with one number per token.
        lam: lambda.

    Returns:
        Unwhitened advantages and the critic's targets, A + V, both [E, N].
    """
    discount = rewards.new_ones(rewards.shape) * discount
    advantages = rewards.new_zeros(rewards.shape)
    following, carried = last_values, last_values.new_zeros(last_values.shape)
    for t in reversed(range(rewards.shape[1])):
        here = mask[:, t]
        # Carry both across tokens that were not sampled, such as the next screen.
        delta = rewards[:, t] + discount[:, t] * following - values[:, t]
        carried = (delta + discount[:, t] * lam * carried).where(here, carried)
        following = values[:, t].where(here, following)
        advantages[:, t] = carried.where(here, advantages[:, t])
    return advantages, (advantages + values) * mask


class PPOLoss(PolicyLoss):
    """PPO's clipped objective with asymmetric bounds and a dual clip.

    max(-A r, -A clip(r, 1 - low, 1 + high)); where A < 0, at most -c A.
    """

    about = "clips the probability ratio"
    source = "arXiv:1707.06347; arXiv:2503.14476 (`clip_high`); arXiv:1912.09729 (`clip_dual`)"
    formula = "max(-A r, -A clip(r)); at most -c A where A < 0"
    differs = (
        "same as verl; TRL's `delta` is our `clip_dual`, and off by default; at r = 1 the "
        "gradients are equal (see Speed)"
    )

    @dataclass(slots=True, kw_only=True)
    class Config(LossConfig):
        """Clipping of the probability ratio to the sampling policy."""

        clip_low: NonNegativeFloat = 0.2
        """The ratio is clipped below at `1 - clip_low`."""
        clip_high: NonNegativeFloat = 0.2
        """The ratio is clipped above at `1 + clip_high`."""
        clip_dual: float | None = 3.0
        """Dual clip: limits the loss of a token with negative advantage to this multiple of the
        advantage's magnitude; None for no limit."""

        def validate(self) -> None:
            """Raise `ConfigError` at the first invalid value."""
            if self.clip_dual is not None and self.clip_dual < 1:
                raise ConfigError(
                    f"algorithm.loss.clip_dual={self.clip_dual}: must be at least 1, or null; "
                    "below 1, tokens with negative advantage have no gradient"
                )

    config: Config

    def __call__(self, inputs: LossInputs) -> TokenLoss:
        ratio = log_ratio(inputs.logprobs, inputs.old_logprobs).exp()
        return clipped(ratio, inputs.advantages, self.config)


def clipped(ratio: Tensor, advantages: Tensor, config: PPOLoss.Config) -> TokenLoss:
    """Return [N] the clipped objective of ratios."""
    free = -advantages * ratio
    bounded = -advantages * ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    loss, is_clipped = free.maximum(bounded), bounded > free
    # Where A < 0, the first bound does not limit large ratios, so one token could dominate a batch.
    if config.clip_dual is not None:
        ceiling = -config.clip_dual * advantages
        dual = (advantages < 0) & (loss > ceiling)
        loss, is_clipped = ceiling.where(dual, loss), is_clipped | dual
    return TokenLoss(loss=loss, clipped=is_clipped)
