"""Proportions over episodes whose siblings are correlated, and their confidence intervals."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from agentrl.confidence_intervals import wilson_interval

_PRIOR_GROUPS = 0.5
"""Weight, in groups with an error, of the prior assumption that siblings are always alike."""


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
