"""Which of the questions that are drawn are kept from training.

What is asked decides, not the seed: other seeds often ask the same again.
"""

from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice

SPLITS = ("train", "eval")
HOLD_OUT = 0.2
_TRIES = 10_000


class Part:
    """The questions of one split.

    Args:
        split: `train` or `eval`; None takes all questions.
        hold_out: the share that is `eval`, 0 for none.
        asked: what some questions ask, as they are drawn, without an end.

    Raises:
        ValueError: there is no such split, or hardly a question in it.
    """

    def __init__(self, split: str | None, hold_out: float, asked: Iterator[str]) -> None:
        if split is not None and split not in SPLITS:
            raise ValueError(f"split={split!r}: must be one of {', '.join(SPLITS)}")
        if not 0 <= hold_out < 1:
            raise ValueError(f"hold_out={hold_out}: the share must lie in [0, 1)")
        self._split, self._hold_out = split, hold_out
        if not any(self.holds(question) for question in islice(asked, _TRIES)):
            raise ValueError(
                f"hold_out={hold_out}: of {_TRIES} questions none is {split}; choose another share"
            )

    def holds(self, asked: str) -> bool:
        """Whether a question is of this split, told by what it asks alone."""
        return self._split is None or (_place(asked) < self._hold_out) == (self._split == "eval")


def _place(text: str) -> float:
    """A number in [0, 1) that hangs on the text alone."""
    digest = blake2b(text.encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / (1 << 48)
