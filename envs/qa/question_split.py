"""Splits generated questions into training and evaluation.

The split depends on a question's content, not its seed, because different seeds often ask the same
question.
"""

from collections.abc import Iterator
from itertools import islice

from agentrl.text.formatting import hash_fraction

SPLITS = ("train", "eval")
HOLD_OUT = 0.2
_TRIES = 10_000


class QuestionSplit:
    """The questions of one split.

    Args:
        split: `train` or `eval`; None contains all questions.
        hold_out: the share that belongs to `eval`; 0 for none.
        asked: an endless stream of the contents of sample questions.

    Raises:
        ValueError: unknown split, or a split with hardly any questions.
    """

    def __init__(self, split: str | None, hold_out: float, asked: Iterator[str]) -> None:
        if split is not None and split not in SPLITS:
            raise ValueError(f"split={split!r}: must be one of {', '.join(SPLITS)}")
        if not 0 <= hold_out < 1:
            raise ValueError(f"hold_out={hold_out}: must lie in [0, 1)")
        self._split, self._hold_out = split, hold_out
        if not any(self.contains(question) for question in islice(asked, _TRIES)):
            raise ValueError(
                f"hold_out={hold_out}: none of {_TRIES} sample questions belongs to split={split}; "
                "choose a different share"
            )

    def contains(self, asked: str) -> bool:
        """Return whether a question belongs to this split, which depends only on its content."""
        is_held_out = hash_fraction(asked) < self._hold_out
        return self._split is None or is_held_out == (self._split == "eval")
