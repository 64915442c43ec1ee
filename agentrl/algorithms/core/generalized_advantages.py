"""Generalized advantage estimation, as a pure function of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def gae(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    last_values: Tensor,
    discount: Tensor | float = 1.0,
    lam: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Generalized advantage estimation over the sampled tokens.

    delta_t = r_t + discount V_(t+1) - V_t and A_t = delta_t + discount lam A_(t+1), where both
    V and A are carried across positions outside the mask.

    Source: arXiv:1506.02438.

    Args:
        rewards: [E, N], of tokens.
        values: [E, N], of the state before each token.
        mask: bool[E, N]
        last_values: [E], of the state after the last token: 0 if the episode terminated, the
            critic's value if it was truncated.
        discount: a number, or one for each token.
        lam: lambda.

    Returns:
        Advantages, not whitened, and the critic's targets, A + V; [E, N] each.
    """
    discount = rewards.new_ones(rewards.shape) * discount
    advantages = rewards.new_zeros(rewards.shape)
    following, carried = last_values, last_values.new_zeros(last_values.shape)
    for t in reversed(range(rewards.shape[1])):
        here = mask[:, t]
        delta = rewards[:, t] + discount[:, t] * following - values[:, t]
        carried = (delta + discount[:, t] * lam * carried).where(here, carried)
        following = values[:, t].where(here, following)
        advantages[:, t] = carried.where(here, advantages[:, t])
    return advantages, (advantages + values) * mask
