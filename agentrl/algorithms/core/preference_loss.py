"""Losses on pairs of a better and a worse answer: DPO, IPO, SimPO and Bradley-Terry.

Shapes: P pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import logsigmoid

from agentrl.config import DPOConfig


@dataclass(slots=True, kw_only=True, frozen=True)
class AnswerLogprobs:
    """Log-probabilities of one answer of each pair."""

    policy: Tensor
    """[P] log-probability of the whole answer under the policy."""
    reference: Tensor
    """[P] log-probability of the whole answer under the reference model."""
    tokens: Tensor
    """[P] number of tokens in the answer."""


def dpo_reward(answers: AnswerLogprobs, beta: float) -> Tensor:
    """Return [P] the implicit reward of DPO (arXiv:2305.18290, equation 5)."""
    return beta * (answers.policy - answers.reference)


def ipo_reward(answers: AnswerLogprobs, beta: float) -> Tensor:
    """Return [P] the log-ratio per token, as computed by the authors of IPO (arXiv:2310.12036)."""
    return (answers.policy - answers.reference) / answers.tokens


def simpo_reward(answers: AnswerLogprobs, beta: float) -> Tensor:
    """Return [P] the implicit reward of SimPO (arXiv:2405.14734, equation 4), reference-free."""
    return beta * answers.policy / answers.tokens


IMPLICIT_REWARDS: dict[str, Callable[[AnswerLogprobs, float], Tensor]] = {
    "dpo": dpo_reward,
    "ipo": ipo_reward,
    "simpo": simpo_reward,
}
"""Implicit rewards by the name of the loss."""


def preference_losses(
    chosen: Tensor, rejected: Tensor, config: DPOConfig, margins: Tensor | float = 0.0
) -> Tensor:
    """Compute the loss of each pair.

    Args:
        chosen: [P] implicit rewards of the better answers.
        rejected: [P] implicit rewards of the worse answers.
        config: selects the loss.
        margins: [P] margin of each pair, added to the configured margin (ODPO, arXiv:2402.10571).

    Returns:
        [P]
    """
    # Equation 17 of the paper; its tau is our beta.
    if config.loss == "ipo":
        return (chosen - rejected - 1 / (2 * config.beta)).square()
    # DPO, equation 7, with the label smoothing of cDPO (https://ericmitchell.ai/cdpo.pdf).
    margin, swapped = chosen - rejected - config.margin - margins, config.label_smoothing
    return -(1 - swapped) * logsigmoid(margin) - swapped * logsigmoid(-margin)


def bradley_terry_losses(
    chosen: Tensor, rejected: Tensor, center: float, margins: Tensor | float = 0.0
) -> Tensor:
    """Compute a reward model's loss on each pair.

    Source: negative log-likelihood in the Bradley-Terry model (arXiv:2203.02155, equation 1), with
    margins from Llama 2 (arXiv:2307.09288, equation 2) and a term that keeps rewards around 0 from
    arXiv:2312.09244.

    Args:
        chosen: [P] rewards of the better answers.
        rejected: [P] rewards of the worse answers.
        center: coefficient of the squared sum of a pair's rewards.
        margins: [P] margin of each pair.

    Returns:
        [P]
    """
    return -logsigmoid(chosen - rejected - margins) + center * (chosen + rejected).square()
