"""GSPO: Group Sequence Policy Optimization."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentrl.algorithms.core.kl import bounded
from agentrl.algorithms.core.policy_loss import LossInputs, TokenLoss
from agentrl.algorithms.core.statistics import turn_means
from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.ppo import PPOLoss, clipped
from agentrl.config import LossConfig


class GSPOLoss(PPOLoss):
    """The clipped objective with one ratio per reply: the geometric mean of its tokens' ratios.

    s = exp(mean(log r)) over the reply, in the form sg[s] pi / sg[pi], so that each token can have
    its own advantage. A sequence is one turn's reply, so that the loss does not depend on how an
    episode is split into samples.
    """

    about = "clips one ratio per reply"
    source = "arXiv:2507.18071"
    formula = "as for `ppo`, with r replaced by s, the geometric mean of r over the reply"
    differs = (
        "TRL and verl compute one s per row, even if it has several turns; neither they nor the "
        "paper have a dual clip, which is off by default here; verl caps log s at 10"
    )

    @dataclass(slots=True, kw_only=True)
    class Config(PPOLoss.Config):
        """Clips more narrowly than PPO, because this ratio is a mean over the reply's tokens."""

        clip_low: float = 3e-4
        """The ratio is clipped below at `1 - clip_low`."""
        clip_high: float = 4e-4
        """The ratio is clipped above at `1 + clip_high`."""
        clip_dual: float | None = None
        """Same as `clip_dual` of the loss `ppo`. The paper has no dual clip."""

    def __call__(self, inputs: LossInputs) -> TokenLoss:
        difference = (inputs.logprobs - inputs.old_logprobs).detach()
        mean = bounded(turn_means(difference, inputs.turn))
        # The value is s, but the gradient comes from the token's own log-probability.
        ratio = (mean + inputs.logprobs - inputs.logprobs.detach()).exp()
        return clipped(ratio, inputs.advantages, self.config)


class GSPO(GRPO):
    """GRPO's advantages with one importance ratio per reply."""

    about = "one importance ratio per reply"
    source = "arXiv:2507.18071"

    @dataclass(slots=True, kw_only=True)
    class Config(GRPO.Config):
        """Settings with the paper's loss."""

        loss: LossConfig = field(default_factory=lambda: GSPOLoss.Config(name="gspo"))
