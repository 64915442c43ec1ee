r"""Rewards of 1 for a right answer, else 0: compared as text, as a number, or as a choice.

The answer is in the last reply, as `<answer>...</answer>` or `\boxed{...}`; the true answer is in
the environment's info, as `ground_truth`, or as `accepted` if there are several right answers.
"""

from agentrl.data import grading, reward_inputs
from agentrl.types import Episode


def exact(episode: Episode) -> float:
    """Return 1 for the same text, ignoring case, whitespace and a final period, else 0."""
    answer = reward_inputs.last_answer(episode)
    accepted = reward_inputs.accepted(episode)
    return float(answer is not None and grading.matches_text(answer, accepted))


def numeric(episode: Episode, tolerance: float = 0.0) -> float:
    """Return 1 for the same number, else 0.

    Args:
        episode: its true answer must be a number.
        tolerance: maximum relative error.

    Raises:
        ValueError: the true answer is not a number.
    """
    accepted = reward_inputs.accepted(episode)
    return float(
        grading.matches_number(reward_inputs.last_answer(episode) or "", accepted, tolerance)
    )


def choice(episode: Episode) -> float:
    """Return 1 for the right option, given by its letter, its text or both, else 0."""
    answer, accepted = reward_inputs.last_answer(episode), reward_inputs.accepted(episode)
    options = reward_inputs.options(episode.reset_info)
    return float(answer is not None and grading.matches_choice(answer, accepted, options))
