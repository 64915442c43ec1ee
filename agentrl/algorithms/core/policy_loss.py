"""The base class of policy losses, and what they compute from."""

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
    """N sampled tokens of any number of replies; a reply's tokens are all there."""

    logprobs: Tensor
    """[N] under the policy; carries the gradient."""
    old_logprobs: Tensor
    """[N] under the policy that sampled, or the learner before the update if
    `algorithm.importance_correction` corrects for the difference."""
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
    """The papers that it is from."""
    formula: ClassVar[str] = ""
    """The loss of one token."""
    differs: ClassVar[str] = ""
    """How other implementations differ."""
    all_tokens: ClassVar[bool] = False
    """Whether tokens with advantage 0 have a gradient, as `Requires.all_tokens` of an algorithm."""
    Config: ClassVar[type[LossConfig]] = LossConfig
    """A dataclass of its settings, each with a default."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def __call__(self, inputs: LossInputs) -> TokenLoss:
        """The loss of every token; a reply's tokens must not depend on those of other replies."""


def load_loss(config: LossConfig) -> PolicyLoss:
    """The loss that a configuration names."""
    loss: PolicyLoss = LOSS.resolve(config.name)(config)
    return loss
