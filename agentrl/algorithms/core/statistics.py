"""Statistics shared by advantage estimators, as pure functions of tensors.

Shapes: E episodes of a training step; N sampled tokens of the longest episode. Inputs outside a
mask have no influence, and outputs outside it are 0. `group` is equal for group members. Values
that are not `valid`, for example because a fault ended the episode, are excluded from all
statistics and get 0. The result is also 0 for values that have nothing to be compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

EPSILON = 1e-6
"""Added to standard deviations before dividing by them."""


def nearly_equal(lowest: float, highest: float) -> bool:
    """Return whether numbers are equal up to rounding: .1 + .2 + .3 differs from .3 + .2 + .1."""
    return math.isclose(lowest, highest, rel_tol=1e-9, abs_tol=1e-9)


def _all_equal(values: Tensor) -> bool:
    return not len(values) or nearly_equal(values.min().item(), values.max().item())


def standardize(values: Tensor) -> Tensor:
    """Return [G] (x - mean) / (std + 1e-6), ddof 1; all 0 for a single value or equal values."""
    # Treat nearly equal values as equal, because the division would amplify rounding errors.
    if len(values) < 2 or _all_equal(values):
        return values.new_zeros(values.shape)
    return (values - values.mean()) / (values.std() + EPSILON)


def rescale(values: Tensor) -> Tensor:
    """Return [G] x / (std + 1e-6), ddof 1; all 0 for a single value or equal values."""
    if len(values) < 2 or _all_equal(values):
        return values.new_zeros(values.shape)
    return values / (values.std() + EPSILON)


def center(values: Tensor) -> Tensor:
    """Return [G] x - mean; all 0 for equal values."""
    if _all_equal(values):
        return values.new_zeros(values.shape)
    return values - values.mean()


def leave_one_out(values: Tensor) -> Tensor:
    """Return [G] x - mean of the other values, n / (n - 1) (x - mean); 0 for a single value."""
    n = len(values)
    return center(values) * (n / (n - 1)) if n > 1 else values.new_zeros(values.shape)


def per_group(
    compare: Callable[[Tensor], Tensor], values: Tensor, group: Tensor, valid: Tensor
) -> Tensor:
    """Apply `compare` to the valid values of each group; return 0 elsewhere.

    Args:
        compare: function from [G] to [G].
        values: tensor of any shape.
        group: same shape as `values`, equal for group members.
        valid: bool, same shape as `values`.
    """
    result = values.new_zeros(values.shape)
    for name in distinct(group[valid]):
        members = (group == name) & valid
        result[members] = compare(values[members])
    return result


def distinct(names: Tensor) -> Tensor:
    """Return the distinct values of a tensor, ascending."""
    found: Tensor = names.unique()  # type: ignore[no-untyped-call]
    return found


def whiten(values: Tensor, mask: Tensor) -> Tensor:
    """Scale `values` to mean 0 and standard deviation 1 (ddof 1) over the whole batch's mask."""
    result = values.new_zeros(values.shape)
    result[mask] = standardize(values[mask])
    return result


def returns_to_go(rewards: Tensor, mask: Tensor, discount: Tensor | float = 1.0) -> Tensor:
    """Return [E, N] G_t = r_t + discount_t G_(t+1), over the mask.

    Positions outside the mask neither reset nor discount the return carried across them.

    Args:
        rewards: [E, N]
        mask: bool[E, N]
        discount: a number or [E, N], the factor applied to everything after a position.
    """
    discount = rewards.new_ones(rewards.shape) * discount
    result = rewards.new_zeros(rewards.shape)
    carried = rewards.new_zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        here = mask[:, t]
        carried = (rewards[:, t] + discount[:, t] * carried).where(here, carried)
        result[:, t] = carried.where(here, result[:, t])
    return result


def last_of_turns(mask: Tensor, turn: Tensor) -> Tensor:
    """Return bool[E, N], True on the last sampled token of each turn.

    Args:
        mask: bool[E, N]
        turn: int64[E, N], turn of each token, increasing along an episode.
    """
    result = mask.new_zeros(mask.shape)
    later = turn.new_full((len(turn),), -1)
    for t in reversed(range(mask.shape[1])):
        result[:, t] = mask[:, t] & (turn[:, t] != later)
        later = turn[:, t].where(mask[:, t], later)
    return result


def turn_means(values: Tensor, turn: Tensor) -> Tensor:
    """Return [N] the mean of `values` over the tokens of the same turn."""
    sums, count = turn_sums(values, turn)
    means: Tensor = sums / count
    return means


def turn_sums(values: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
    """Return [N] the sum of `values` over the tokens of the same turn, and [N] their number."""
    _, place, count = turn.unique(return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
    sums = values.new_zeros(len(count)).index_add(0, place, values)
    return sums[place], count[place]
