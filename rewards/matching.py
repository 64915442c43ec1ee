r"""1 for a right answer, else 0: by text, by number, or by choice.

The answer stands in the last reply, as `<answer>...</answer>` or `\boxed{...}`; the truth in the
environment's info, as `ground_truth`, or as `accepted` where there are several right answers.
"""

from agentrl.data import grading, reward_inputs
from agentrl.types import Episode


def exact(episode: Episode) -> float:
    """The same text, but for case, white space and a full stop."""
    answer = reward_inputs.last_answer(episode)
    accepted = reward_inputs.accepted(episode)
    return float(answer is not None and grading.exact(answer, accepted))


def numeric(episode: Episode, tolerance: float = 0.0) -> float:
    """The same number.

    Args:
        episode: with a true answer that is a number.
        tolerance: how far off it may be, as a share of the true number.

    Raises:
        ValueError: the true answer is no number.
    """
    accepted = reward_inputs.accepted(episode)
    return float(grading.numeric(reward_inputs.last_answer(episode) or "", accepted, tolerance))


def choice(episode: Episode) -> float:
    """The right one of some options: by its letter, by its text, or both."""
    answer, accepted = reward_inputs.last_answer(episode), reward_inputs.accepted(episode)
    options = reward_inputs.options(episode.reset_info)
    return float(answer is not None and grading.choice(answer, accepted, options))
