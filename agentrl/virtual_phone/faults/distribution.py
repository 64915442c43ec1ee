"""Random numbers in the notation of fault values."""

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
    """`5` is constant, `5-20` uniform, `lognormal:40:0.5` log-normal with median 40 and sigma 0.5.

    `inf` stands for never.
    """

    low: float
    high: float
    sigma: float | None = None
    """Standard deviation of the logarithm of a log-normal distribution with median `low`."""

    @staticmethod
    def parse(text: str) -> "Distribution":
        """Parse a distribution.

        Raises:
            ValueError: the text is not a distribution.
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
        raise ValueError(f"{text[:60]!r} must be NUMBER, LOW-HIGH or lognormal:MEDIAN:SIGMA")

    def draw(self, source: random.Random) -> float:
        """Draw a number."""
        if self.low == math.inf:
            return math.inf
        if self.sigma is None:
            return source.uniform(self.low, self.high)
        return min(_LARGEST, self.low * math.exp(source.gauss(0.0, self.sigma)))
