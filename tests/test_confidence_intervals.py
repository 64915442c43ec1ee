"""pass@k and confidence intervals, against scipy, NumPy and the published code."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from agentrl.confidence_intervals import (
    GroupSums,
    estimate,
    ks_of,
    pass_at_k,
    student_estimate,
    t_quantile,
    wilson_interval,
)


def published_pass_at_k(n, c, k):
    """As in the paper (arXiv:2107.03374, figure 3)."""
    if n - c < k:
        return 1.0
    return 1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1))


@given(st.integers(1, 300), st.data())
def test_pass_at_k_is_that_of_the_paper_and_of_binomial_coefficients(n, data) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    assert pass_at_k(n, c, k) == pytest.approx(published_pass_at_k(n, c, k), abs=1e-9)
    if n < 60:
        ours = 1 - special.comb(n - c, k) / special.comb(n, k)
        assert pass_at_k(n, c, k) == pytest.approx(ours, abs=1e-9)


def test_pass_at_k_is_unbiased() -> None:
    """Its mean over all subsets of a binomial draw is the chance that one of k samples passes."""
    n, p, k = 6, 0.3, 4
    expected = sum(stats.binom.pmf(c, n, p) * pass_at_k(n, c, k) for c in range(n + 1))
    assert expected == pytest.approx(1 - (1 - p) ** k)


@pytest.mark.parametrize(
    ("n", "ks"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (12, [1, 2, 4, 8, 12])]
)
def test_k_is_one_the_powers_of_two_and_n(n, ks) -> None:
    assert ks_of(n) == ks


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_impossible_counts_are_refused(n, c, k) -> None:
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(n, c, k)


@given(st.integers(1, 400))
def test_the_quantile_is_scipys(freedom) -> None:
    assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)


finite = st.lists(st.floats(-50, 50).map(lambda x: round(x, 3)), min_size=2, max_size=40)


@given(finite)
def test_the_interval_of_a_mean_is_scipys(values) -> None:
    found = student_estimate(values)
    if len(set(values)) == 1:
        assert (found.low, found.high, found.method) == (None, None, None)
        return
    scale = stats.sem(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=scale)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6, abs=1e-9)


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_the_interval_of_zeros_and_ones_is_scipys_wilson_interval(values) -> None:
    found = estimate([float(value) for value in values])
    theirs = stats.binomtest(sum(values), len(values)).proportion_ci(0.95, method="wilson")
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-6)
    assert found.method == "wilson"


def test_paired_differences_have_the_interval_of_scipys_paired_test() -> None:
    rng = np.random.default_rng(0)
    before = rng.normal(size=30)
    after = before + rng.normal(0.3, 0.5, size=30)
    found = student_estimate(list(after - before))
    theirs = stats.ttest_rel(after, before).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high))


def test_intervals_of_shares_stay_within_zero_and_one() -> None:
    values = [0.0, 0.0, 0.0, 0.9]
    free, share = estimate(values), estimate(values, are_shares=True)
    assert free.low is not None
    assert free.low < 0
    assert (share.low, share.high) == (0.0, free.high)


@pytest.mark.parametrize("count", [5, 20])
def test_95_percent_intervals_contain_the_mean_that_often(count) -> None:
    rng, covered = np.random.default_rng(1), 0
    for _ in range(2000):
        found = student_estimate(list(rng.normal(3.0, 2.0, count)))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 3.0 <= found.high
    assert stats.binomtest(covered, 2000, 0.95).pvalue > 0.001


def test_wilson_gives_the_published_intervals():
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)  # Newcombe, 1998
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)


@given(of=st.integers(1, 10_000), share=st.floats(0, 1))
def test_wilson_interval_contains_the_share_and_is_symmetric(of, share):
    successes = round(of * share)
    low, high = wilson_interval(successes, of)
    assert 0 <= low <= successes / of + 1e-12
    assert successes / of - 1e-12 <= high <= 1
    other = wilson_interval(of - successes, of)
    assert math.isclose(low, 1 - other[1], abs_tol=1e-9)


@pytest.mark.parametrize("share", [0.02, 0.05, 0.2])
@pytest.mark.parametrize("siblings", ["alike", "partly alike", "independent", "few failures"])
def test_intervals_of_siblings_cover_the_true_share(siblings, share):
    rng, shape = np.random.default_rng(0), (3000, 125)
    of, wrong = np.full(shape, 8), rng.binomial(8, share, shape)
    if siblings == "partly alike":
        wrong = rng.binomial(8, rng.beta(2 * share, 2 - 2 * share, shape))
    elif siblings != "independent":
        of = of if siblings == "alike" else rng.binomial(8, rng.random(shape))
        wrong = of * (rng.random(shape) < share)
    sums = zip(
        (of > 0).sum(1), (wrong > 0).sum(1), wrong.sum(1), of.sum(1), (wrong**2).sum(1),
        (wrong * of).sum(1), (of**2).sum(1), strict=True,
    )  # fmt: skip
    found = [GroupSums(*map(int, one)).share() for one in sums]
    covered = np.mean([one.low <= share <= one.high for one in found])
    assert 0.93 <= covered <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize(("count", "of"), [(0, 20), (1, 29), (15, 148), (81, 263), (263, 263)])
def test_the_interval_of_groups_of_one_is_scipys_wilson_interval(count, of):
    found = GroupSums.of_groups([(int(n < count), 1) for n in range(of)]).share()
    theirs = stats.binomtest(count, of).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-6)
