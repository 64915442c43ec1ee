"""Losses on pairs of a better and a worse answer: DPO, IPO, SimPO, and that of reward models.

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
    """[P] log-probability of all of the answer's tokens."""
    reference: Tensor
    """[P] log-probability under the reference model."""
    tokens: Tensor
    """[P] number of the answer's tokens."""


def dpo_reward(answers: AnswerLogprobs, beta: float) -> Tensor:
    """[P] implicit reward of DPO (arXiv:2305.18290, equation 5)."""
    return beta * (answers.policy - answers.reference)


def ipo_reward(answers: AnswerLogprobs, beta: float) -> Tensor:
    """[P] log-ratio per token, as the authors of IPO (arXiv:2310.12036) do it in their results."""
    return (answers.policy - answers.reference) / answers.tokens


def simpo_reward(answers: AnswerLogprobs, beta: float) -> Tensor:
    """[P] implicit reward of SimPO (arXiv:2405.14734, equation 4), without a reference."""
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
    """The loss of each pair.

    Args:
        chosen: [P] implicit rewards of the better answers.
        rejected: [P] those of the worse ones.
        config: selects the loss.
        margins: [P] of the pairs, beside that of the configuration (ODPO, arXiv:2402.10571).

    Returns:
        [P]
    """
    # Equation 17 of the paper; its tau is our beta.
    if config.loss == "ipo":
        return (chosen - rejected - 1 / (2 * config.beta)).square()
    # DPO, equation 7; label smoothing is that of conservative DPO (https://ericmitchell.ai/cdpo.pdf).
    margin, swapped = chosen - rejected - config.margin - margins, config.label_smoothing
    return -(1 - swapped) * logsigmoid(margin) - swapped * logsigmoid(-margin)


def bradley_terry_losses(
    chosen: Tensor, rejected: Tensor, center: float, margins: Tensor | float = 0.0
) -> Tensor:
    """The loss of a reward model for each pair.

    Source: negative log-likelihood in the model of Bradley and Terry (arXiv:2203.02155, equation
    1); margins are those of Llama 2 (arXiv:2307.09288, equation 2); the term that keeps rewards
    around 0 is of arXiv:2312.09244.

    Args:
        chosen: [P] rewards of the better answers.
        rejected: [P] those of the worse ones.
        center: coefficient of the squared sum of a pair's rewards.
        margins: [P] of the pairs.

    Returns:
        [P]
    """
    return -logsigmoid(chosen - rejected - margins) + center * (chosen + rejected).square()
