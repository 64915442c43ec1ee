"""Estimates from few episodes: pass@k, and 95% confidence intervals of means and proportions."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

_COVERAGE = 0.95
"""Probability that an interval contains the true mean."""
_Z = 1.959964
"""Quantile of the normal distribution for a 95% interval."""
_PRIOR_GROUPS = 0.5
"""Weight, in groups with an error, of the prior assumption that siblings are always alike."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Estimate:
    """A mean with its 95% confidence interval."""

    mean: float
    count: int
    """Number of independent values, such as seeds or questions."""
    low: float | None = None
    """Lower end of the interval; None, like `high`, if the spread cannot be estimated."""
    high: float | None = None
    method: str | None = None
    """`wilson`, `t`, or None without an interval."""


def pass_at_k(num_samples: int, num_passed: int, k: int) -> float:
    """Return the unbiased estimate that any of k samples passes (arXiv:2107.03374, section 2.1).

    Args:
        num_samples: n, the number of samples drawn, at least k.
        num_passed: c, the number of samples that passed.
        k: at least 1.

    Returns:
        1 - C(n - c, k) / C(n, k).
    """
    if not 0 <= num_passed <= num_samples or not 1 <= k <= num_samples:
        raise ValueError(
            f"pass@{k} is undefined for {num_passed} passed out of {num_samples} samples"
        )
    return 1.0 - math.comb(num_samples - num_passed, k) / math.comb(num_samples, k)


def ks_of(num_samples: int) -> list[int]:
    """Return the values of k for which pass@k is reported: powers of two below n, and n."""
    return [1 << power for power in range((num_samples - 1).bit_length())] + [num_samples]


def estimate(values: Sequence[float], *, are_shares: bool = False) -> Estimate:
    """Estimate the mean of independent values, such as one per seed.

    The interval is Wilson's score interval if all values are 0 or 1, and Student's t interval
    otherwise. There is no interval for a single value, or for equal values other than 0 and 1.

    Args:
        values: at least one value.
        are_shares: True if values, and thus the interval, lie in [0, 1].
    """
    if all(value in (0.0, 1.0) for value in values):
        low, high = wilson_interval(int(sum(values)), len(values))
        mean = sum(values) / len(values)
        return Estimate(mean=mean, count=len(values), low=low, high=high, method="wilson")
    found = student_estimate(values)
    if not are_shares or found.low is None or found.high is None:
        return found
    return replace(found, low=max(found.low, 0.0), high=min(found.high, 1.0))


def reported_estimate(mean: float, values: Sequence[float]) -> Estimate:
    """Return a reported mean with the interval of its values, if their mean is the same.

    It differs if the mean is weighted, as in a mixture, or if some values are missing.

    Args:
        mean: the reported mean, which may be rounded to three decimals.
        values: independent values, such as one per seed; may be empty.
    """
    own = estimate(values) if values else None
    if own is not None and math.isclose(own.mean, mean, abs_tol=1e-3):
        return own
    return Estimate(mean=mean, count=len(values))


def with_interval(
    found: Estimate | None,
    number: Callable[[float], str] = "{:.3g}".format,
    *,
    signed: bool = False,
) -> str:
    """Format an estimate as `0.2 (0.1 to 0.3)`; empty without an estimate.

    Args:
        found: the estimate, if any.
        number: formats the mean and the ends of the interval.
        signed: whether a positive mean gets a sign, as a difference does.
    """
    if found is None:
        return ""
    mean = f"{'+' if signed and found.mean > 0 else ''}{number(found.mean)}"
    if found.low is None or found.high is None:
        return mean
    return f"{mean} ({number(found.low)} to {number(found.high)})"


def wilson_interval(successes: float, of: float) -> tuple[float, float]:
    """Return the 95% score interval of a proportion (E. B. Wilson, 1927).

    The interval remains valid for few trials and for proportions near 0 and 1. Neither number needs
    to be an integer, because dependent trials count as fewer.

    Raises:
        ValueError: there are no trials, or more successes than trials.
    """
    if not 0 <= successes <= of or of < 1:
        raise ValueError(f"{successes} successes in {of} trials are impossible")
    share, z2 = successes / of, _Z * _Z
    middle = share + z2 / (2 * of)
    reach = _Z * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    low, high = ((middle + sign * reach) / (1 + z2 / of) for sign in (-1, 1))
    return max(low, 0.0), min(high, 1.0)


def student_estimate(values: Sequence[float]) -> Estimate:
    """Estimate the mean of independent values or paired differences with Student's t interval."""
    count = len(values)
    mean = math.fsum(values) / count
    spread = math.fsum((value - mean) ** 2 for value in values)
    if count < 2 or spread <= 1e-18 * max(1.0, mean * mean) * count:
        return Estimate(mean=mean, count=count)
    reach = t_quantile(count - 1) * math.sqrt(spread / (count - 1) / count)
    return Estimate(mean=mean, count=count, low=mean - reach, high=mean + reach, method="t")


@lru_cache
def t_quantile(freedom: int) -> float:
    """Return t such that Student's distribution lies in [-t, t] with a probability of 95%."""
    low, high = 0.0, 1.0
    while _t_coverage(high, freedom) < _COVERAGE:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_coverage(middle, freedom) < _COVERAGE else (low, middle)
    return high


def _t_coverage(t: float, freedom: int) -> float:
    """Return P(|T| <= t) for whole degrees of freedom (Abramowitz and Stegun, 26.7.3, 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cos2 = math.cos(angle) ** 2
    is_odd = freedom % 2
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0
    for number in range(1 + is_odd, freedom, 2):
        total += term
        term *= cos2 * number / (number + 1)
    if is_odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


@dataclass(slots=True, kw_only=True, frozen=True)
class Share:
    """A proportion with its 95% interval; `share`, `low` and `high` are None without episodes."""

    count: int
    of: int
    share: float | None
    low: float | None
    high: float | None

    def complement(self) -> "Share":
        """Return the proportion of the remaining episodes."""
        if self.share is None or self.low is None or self.high is None:
            return self
        return Share(
            count=self.of - self.count,
            of=self.of,
            share=1 - self.share,
            low=1 - self.high,
            high=1 - self.low,
        )


class GroupSums(NamedTuple):
    """Sums over groups of siblings of their errors, sizes, and products of both."""

    groups: int = 0
    wrong_groups: int = 0
    """Number of groups with an error."""
    wrong: int = 0
    of: int = 0
    wrong_squared: int = 0
    wrong_times_of: int = 0
    of_squared: int = 0

    @classmethod
    def total(cls, parts: Iterable["GroupSums"]) -> "GroupSums":
        """Return the sums over all groups in `parts`."""
        return cls(*map(sum, zip(*parts, strict=True)))

    @classmethod
    def of_groups(cls, groups: Iterable[tuple[int, int]]) -> "GroupSums":
        """Return the sums over groups, each given as its numbers of errors and episodes."""
        return cls.total(
            cls(1, int(wrong > 0), wrong, of, wrong * wrong, wrong * of, of * of)
            for wrong, of in groups
            if of
        )

    def share(self) -> Share:
        """Return the share of errors, with Wilson's interval for the effective sample size.

        Siblings answer the same question, so a reward that is wrong about one sibling is often
        wrong about all. The variance between groups shows how often (the ratio estimator of cluster
        sampling, W. G. Cochran, Sampling Techniques, 1977, section 9A); with too few erroneous
        groups to measure this, siblings are assumed to be alike.
        """
        if not self.of:
            return Share(count=0, of=0, share=None, low=None, high=None)
        share, alike = self.wrong / self.of, self.of_squared / self.of
        # The factor by which the variance exceeds the variance of independent episodes.
        effect = alike
        if 0 < share < 1 and self.groups > 1 and alike > 1:
            residuals = (
                self.wrong_squared - 2 * share * self.wrong_times_of + share**2 * self.of_squared
            )
            independent = share * (1 - share) * self.of
            measured = self.groups / (self.groups - 1) * residuals / independent
            weight = self.wrong_groups
            effect = (measured * weight + alike * _PRIOR_GROUPS) / (weight + _PRIOR_GROUPS)
        effective = max(1.0, self.of / max(1.0, effect))
        low, high = wilson_interval(share * effective, effective)
        return Share(count=self.wrong, of=self.of, share=share, low=low, high=high)
