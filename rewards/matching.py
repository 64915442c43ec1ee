r"""1 for a right answer, else 0: by text, by number, or by choice.

The answer stands in the last reply, as `<answer>...</answer>` or `\boxed{...}`; the truth in the
environment's info, as `ground_truth`, or as `accepted` where there are several right answers.
"""

from agentrl.data import grading, replies
from agentrl.types import Episode


def exact(episode: Episode) -> float:
    """The same text, but for case, white space and a full stop."""
    answer = replies.last_answer(episode)
    accepted = replies.accepted(episode)
    return float(answer is not None and grading.exact(answer, accepted))


def numeric(episode: Episode, tolerance: float = 0.0) -> float:
    """The same number.

    Args:
        episode: with a true answer that is a number.
        tolerance: how far off it may be, as a share of the true number.

    Raises:
        ValueError: the true answer is no number.
    """
    accepted = replies.accepted(episode)
    return float(grading.numeric(replies.last_answer(episode) or "", accepted, tolerance))


def choice(episode: Episode) -> float:
    """The right one of some options: by its letter, by its text, or both."""
    answer, accepted = replies.last_answer(episode), replies.accepted(episode)
    options = replies.options(episode.reset_info)
    return float(answer is not None and grading.choice(answer, accepted, options))
