"""Numbers that are drawn, as a user writes them."""

import math
import random
import re
from dataclasses import dataclass

_NUMBER = r"\d+(?:\.\d+)?"
_RANGE = re.compile(rf"({_NUMBER})(?:-({_NUMBER}))?")
_LOGNORMAL = re.compile(rf"lognormal:({_NUMBER}):({_NUMBER})")
_LARGEST = 1e6
_WIDEST = 10.0


@dataclass(slots=True, kw_only=True, frozen=True)
class Distribution:
    """`5` is always 5, `5-20` any number between, `lognormal:40:0.5` mostly near 40, seldom far.

    `inf` is for what never comes.
    """

    low: float
    high: float
    sigma: float | None = None
    """Of the logarithm; `low` is the median then."""

    @staticmethod
    def parse(text: str) -> "Distribution":
        """Read one.

        Raises:
            ValueError: it is none.
        """
        if text == "inf":
            return Distribution(low=math.inf, high=math.inf)
        if found := _RANGE.fullmatch(text):
            low = float(found[1])
            high = low if found[2] is None else float(found[2])
            if low <= high <= _LARGEST:
                return Distribution(low=low, high=high)
        if (found := _LOGNORMAL.fullmatch(text)) and float(found[2]) <= _WIDEST:
            median = float(found[1])
            if median <= _LARGEST:
                return Distribution(low=median, high=median, sigma=float(found[2]))
        raise ValueError(f"{text[:60]!r} must read NUMBER, LOW-HIGH or lognormal:MEDIAN:SIGMA")

    def draw(self, source: random.Random) -> float:
        """One number."""
        if self.low == math.inf:
            return math.inf
        if self.sigma is None:
            return source.uniform(self.low, self.high)
        return min(_LARGEST, self.low * math.exp(source.gauss(0.0, self.sigma)))
