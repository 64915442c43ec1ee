"""The base class of policy losses, and their inputs and outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from agentrl.config import LossConfig
from agentrl.extension_points import LOSS

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True, kw_only=True, frozen=True)
class LossInputs:
    """Inputs of the loss for N sampled tokens: all tokens of one or more replies."""

    logprobs: Tensor
    """[N] log-probabilities under the policy; carries the gradient."""
    old_logprobs: Tensor
    """[N] log-probabilities under the policy that sampled or, if `algorithm.importance_correction`
    corrects for the difference, under the learner before the update."""
    advantages: Tensor
    """[N]"""
    turn: Tensor
    """int64[N], equal for the tokens of one reply."""


@dataclass(slots=True, kw_only=True, frozen=True)
class TokenLoss:
    """A policy loss per token."""

    loss: Tensor
    """[N], to be minimized; carries the gradient."""
    clipped: Tensor
    """bool[N], True where clipping removes the gradient."""


class PolicyLoss(ABC):
    """A policy loss per token; weights, KL penalty and entropy bonus are applied afterwards.

    Example:
        ```python
        class PolicyGradient(PolicyLoss):
            about = "the plain policy gradient"
            source = "arXiv:1604.06778"
            formula = "-A logp"

            def __call__(self, inputs: LossInputs) -> TokenLoss:
                loss = -inputs.advantages * inputs.logprobs
                return TokenLoss(loss=loss, clipped=loss.new_zeros(loss.shape).bool())
        ```

    Args:
        config: the settings of this loss.
    """

    about: ClassVar[str]
    """One-line description of the loss."""
    source: ClassVar[str]
    """Papers that introduced the loss."""
    formula: ClassVar[str] = ""
    """The loss of one token."""
    differs: ClassVar[str] = ""
    """How other implementations differ."""
    all_tokens: ClassVar[bool] = False
    """True if tokens with advantage 0 have a gradient, like an algorithm's
    `Requires.all_tokens`."""
    Config: ClassVar[type[LossConfig]] = LossConfig
    """Dataclass of the loss's settings, all with defaults."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def __call__(self, inputs: LossInputs) -> TokenLoss:
        """Compute the loss of every token. Different replies must not influence each other."""


def load_loss(config: LossConfig) -> PolicyLoss:
    """Create the loss named in a configuration."""
    loss: PolicyLoss = LOSS.resolve(config.name)(config)
    return loss
