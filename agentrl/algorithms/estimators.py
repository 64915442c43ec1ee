"""Advantage estimators, as pure functions of tensors.

Shapes: E episodes of a training step; T turns of the longest; N sampled tokens of the longest, in
the order in which they were sampled, whatever lies between them. `mask` is True where there is such
a turn or token; inputs outside the mask have no influence, and outputs outside it are 0.

Group-relative estimators take `group`, int64[E], equal for group members, and `valid`, bool[E]:
episodes without a valid reward (a phone that failed) are left out of all statistics and get 0.

With nothing in the group to compare with, the advantage is 0: for the only episode of a group where
whole episodes are compared, for the only turn at a state in `gigpo`. Turns are also compared with
other turns of their own episode: `turn_grpo` learns from a single episode, `gigpo` from an episode
that revisits a state. Whitening comes afterwards and subtracts the batch mean everywhere, so a 0
may become another number.

Adding a constant to the last reward of every episode of a group changes nothing where whole
episodes are compared (`grpo`, `dr_grpo`, `rloo`, `reinforce_pp_baseline`, `prime`). For `turn_grpo`
and `gigpo` it changes nothing if the discount is 1, or if the compared turns are equally far from
the end of their episodes; otherwise the constant is discounted by different amounts.
"""

from collections.abc import Callable

import torch
from torch import Tensor

EPSILON = 1e-6
"""Added to standard deviations."""


# --- statistics -------------------------------------------------------------------------------


def standardize(values: Tensor) -> Tensor:
    """[G] (x - mean) / (std + 1e-6), ddof 1; all 0 for one value, or for equal ones."""
    # Compared exactly: the mean of equal numbers may be off by an ulp, and 0 must stay 0.

    if len(values) < 2 or bool((values == values[0]).all()):
        return torch.zeros_like(values)
    return (values - values.mean()) / (values.std() + EPSILON)


def center(values: Tensor) -> Tensor:
    """[G] x - mean; all 0 for equal values."""
    if not len(values) or bool((values == values[0]).all()):
        return torch.zeros_like(values)
    return values - values.mean()


def per_group(
    compare: Callable[[Tensor], Tensor], values: Tensor, group: Tensor, valid: Tensor
) -> Tensor:
    """`compare` applied to the valid values of each group; 0 elsewhere.

    Args:
        compare: [G] to [G].
        values: any shape.
        group: same shape, equal for group members.
        valid: bool, same shape.
    """
    result = torch.zeros_like(values)
    for name in torch.unique(group[valid]):
        members = (group == name) & valid
        result[members] = compare(values[members])
    return result


def whiten(values: Tensor, mask: Tensor) -> Tensor:
    """`values` at mean 0 and standard deviation 1 (ddof 1) over the mask of the whole batch."""
    result = torch.zeros_like(values)
    result[mask] = standardize(values[mask])
    return result


def returns_to_go(rewards: Tensor, mask: Tensor, discount: Tensor | float = 1.0) -> Tensor:
    """[E, N] G_t = r_t + discount_t G_(t+1), over the mask.

    Positions outside the mask neither reset nor discount the return carried across them.

    Args:
        rewards: [E, N]
        mask: bool[E, N]
        discount: one number, or [E, N]: the factor applied to everything after a position.
    """
    discount = torch.as_tensor(discount, dtype=rewards.dtype).expand_as(rewards)
    result = torch.zeros_like(rewards)
    carried = torch.zeros_like(rewards[:, 0]) if rewards.shape[1] else rewards.new_zeros(0)
    for t in reversed(range(rewards.shape[1])):
        carried = torch.where(mask[:, t], rewards[:, t] + discount[:, t] * carried, carried)
        result[:, t] = torch.where(mask[:, t], carried, result[:, t])
    return result


# --- one number for an episode ----------------------------------------------------------------


def grpo(returns: Tensor, group: Tensor, valid: Tensor) -> Tensor:
    """[E] (R - mean) / (std + 1e-6) within the group.

    Source: DeepSeekMath, arXiv:2402.03300, section 4.1.
    """
    return per_group(standardize, returns, group, valid)


def dr_grpo(returns: Tensor, group: Tensor, valid: Tensor) -> Tensor:
    """[E] R - mean in the group; dividing by the std would favor tasks nearly always won or lost.

    Source: Understanding R1-Zero-Like Training, arXiv:2503.20783.
    """
    return per_group(center, returns, group, valid)


def rloo(returns: Tensor, group: Tensor, valid: Tensor) -> Tensor:
    """[E] R - mean return of the other group members, which is n/(n-1) (R - mean).

    Source: Back to Basics, arXiv:2402.14740.
    """

    def leave_one_out(values: Tensor) -> Tensor:
        n = len(values)
        return center(values) * (n / (n - 1)) if n > 1 else torch.zeros_like(values)

    return per_group(leave_one_out, returns, group, valid)


# --- one number for a turn --------------------------------------------------------------------


def turn_grpo(
    rewards: Tensor, mask: Tensor, group: Tensor, valid: Tensor, discount: float
) -> Tensor:
    """[E, T] every turn compared with all turns of the group, by its discounted return to go.

    The returns of REINFORCE++ (arXiv:2501.03262), per turn instead of per token, normalized over
    the group. It needs no matching states, and so mistakes a more promising state for a better
    action; with a discount well below 1 and immediate rewards that hardly matters.

    Args:
        rewards: [E, T]
        mask: bool[E, T]
        group: int64[E], equal for group members.
        valid: bool[E]
        discount: per turn.
    """
    to_go = returns_to_go(rewards, mask, discount)
    return per_group(standardize, to_go, group[:, None].expand_as(mask), mask & valid[:, None])


def gigpo(
    rewards: Tensor,
    mask: Tensor,
    states: Tensor,
    group: Tensor,
    valid: Tensor,
    discount: float,
    episode_weight: float = 1.0,
    state_weight: float = 1.0,
) -> Tensor:
    """[E, T] a weighted sum of the episode's advantage and the turn's advantage at its state.

    The turn's advantage is its discounted return to go, normalized among the turns of the group
    that start from the same state; 0 if no other turn does. An episode's return counts once,
    however many turns it has.

    Source: Group-in-Group Policy Optimization, arXiv:2505.10978.

    Args:
        rewards: [E, T]
        mask: bool[E, T]
        states: int64[E, T], equal for equal states of one group; negative without a state key.
        group: int64[E], equal for group members.
        valid: bool[E]
        discount: per turn.
        episode_weight: weight of the episode's advantage; 1 in the paper.
        state_weight: weight of the turn's advantage at its state; 1 in the paper.
    """
    to_go = returns_to_go(rewards, mask, discount)
    has_state = mask & valid[:, None] & (states >= 0)
    # State numbers are unique within a group only: combine them with the group's.
    state = torch.where(has_state, group[:, None] * (states.max() + 1) + states, -1)
    state_advantages = per_group(standardize, to_go, state, has_state)
    episode_advantages = grpo((rewards * mask).sum(-1), group, valid)[:, None]
    return (episode_weight * episode_advantages + state_weight * state_advantages) * mask


# --- one number for a token -------------------------------------------------------------------


def reinforce_pp(
    rewards: Tensor, mask: Tensor, valid: Tensor, discount: Tensor | float = 1.0
) -> Tensor:
    """[E, N] returns to go, whitened over the batch.

    Tokens that were not sampled neither end nor discount a return: a turn's return includes the
    rewards of later turns.

    Source: REINFORCE++, arXiv:2501.03262.

    Args:
        rewards: [E, N], of tokens.
        mask: bool[E, N]
        valid: bool[E]
        discount: a number, or one for each token.
    """
    mask = mask & valid[:, None]
    return whiten(returns_to_go(rewards, mask, discount), mask)


def reinforce_pp_baseline(returns: Tensor, mask: Tensor, group: Tensor, valid: Tensor) -> Tensor:
    """[E, N] R - mean within the group for each token, whitened over the batch.

    Source: REINFORCE++, arXiv:2501.03262 (the variant with a baseline).

    Args:
        returns: [E]
        mask: bool[E, N]
        group: int64[E], equal for group members.
        valid: bool[E]
    """
    per_token = per_group(center, returns, group, valid)[:, None].expand(mask.shape)
    return whiten(per_token, mask & valid[:, None])


def remax(
    rewards: Tensor, mask: Tensor, valid: Tensor, greedy: Tensor, discount: Tensor | float = 1.0
) -> Tensor:
    """[E, N] returns to go minus the greedy policy's return on the same seed.

    Source: ReMax, arXiv:2310.10505.

    Args:
        rewards: [E, N], of tokens.
        mask: bool[E, N]
        valid: bool[E]
        greedy: [E], the return of the greedy episode.
        discount: a number, or one for each token.
    """
    mask = mask & valid[:, None]
    return (returns_to_go(rewards, mask, discount) - greedy[:, None]) * mask


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
    discount = torch.as_tensor(discount, dtype=rewards.dtype).expand_as(rewards)
    advantages = torch.zeros_like(rewards)
    following, carried = last_values.clone(), torch.zeros_like(last_values)
    for t in reversed(range(rewards.shape[1])):
        here = mask[:, t]
        delta = rewards[:, t] + discount[:, t] * following - values[:, t]
        carried = torch.where(here, delta + discount[:, t] * lam * carried, carried)
        following = torch.where(here, values[:, t], following)
        advantages[:, t] = torch.where(here, carried, advantages[:, t])
    return advantages, (advantages + values) * mask


def turn_gae(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    turn: Tensor,
    last_values: Tensor,
    turn_discount: float = 1.0,
    turn_lam: float = 1.0,
    discount: float = 1.0,
    lam: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Generalized advantage estimation over turns first, then over the tokens of each turn.

    The first pass runs over the last tokens of the turns, with `turn_discount` and `turn_lam`. The
    last token of each turn takes its advantage from it; the second pass goes backwards from there
    to the turn's first token with `discount` and `lam`, and never crosses a turn's end.

    Source: VAGEN (bi-level GAE), arXiv:2510.16907.

    Args:
        rewards: [E, N], of tokens.
        values: [E, N], of the state before each token.
        mask: bool[E, N]
        turn: int64[E, N], the turn of each token, increasing along an episode.
        last_values: [E], as for `gae`.
        turn_discount: per turn.
        turn_lam: lambda over turns.
        discount: per token within a turn.
        lam: lambda over the tokens of a turn.

    Returns:
        Advantages, not whitened, and the critic's targets, A + V; [E, N] each.
    """
    ends = last_of_turns(mask, turn)
    # Rewards before a turn's last token belong to the return of the turn before it.
    ahead = torch.zeros_like(last_values)
    totals = torch.zeros_like(rewards)
    for t in reversed(range(rewards.shape[1])):
        totals[:, t] = (rewards[:, t] + turn_discount * ahead) * ends[:, t]
        ahead = torch.where(ends[:, t], 0.0, ahead + rewards[:, t] * mask[:, t])
    turn_advantages, _ = gae(totals, values, ends, last_values, turn_discount, turn_lam)
    advantages = torch.zeros_like(rewards)
    following, carried = torch.zeros_like(last_values), torch.zeros_like(last_values)
    for t in reversed(range(rewards.shape[1])):
        here, end = mask[:, t], ends[:, t]
        delta = rewards[:, t] + discount * following - values[:, t]
        within_turn = torch.where(end, turn_advantages[:, t], delta + discount * lam * carried)
        carried = torch.where(here, within_turn, carried)
        following = torch.where(here, values[:, t], following)
        advantages[:, t] = torch.where(here, carried, advantages[:, t])
    return advantages, (advantages + values) * mask


def last_of_turns(mask: Tensor, turn: Tensor) -> Tensor:
    """bool[E, N], True on the last sampled token of each turn."""
    result = torch.zeros_like(mask)
    later = torch.full_like(turn[:, 0], -1) if mask.shape[1] else turn.new_zeros(0)
    for t in reversed(range(mask.shape[1])):
        result[:, t] = mask[:, t] & (turn[:, t] != later)
        later = torch.where(mask[:, t], turn[:, t], later)
    return result


def prime(
    rewards: Tensor,
    implicit: Tensor,
    mask: Tensor,
    group: Tensor,
    valid: Tensor,
    discount: Tensor | float = 1.0,
) -> Tensor:
    """[E, N] leave-one-out advantages of the outcome plus those of an implicit process reward.

    The implicit reward of a token is beta log(pi_rm / pi_ref) under a reward model trained on
    outcomes alone. The mean of the other group members, averaged per episode first, is subtracted
    from each token's reward; the rest is summed from each token to the end.

    Source: PRIME, arXiv:2502.01456, equation 5.

    Args:
        rewards: [E, N], of tokens.
        implicit: [E, N], the process reward of each token.
        mask: bool[E, N]
        group: int64[E], equal for group members.
        valid: bool[E]
        discount: discount of later process rewards: a number, or one for each token.
    """
    mask = mask & valid[:, None]
    outcome = rloo((rewards * mask).sum(-1), group, valid)
    means = (implicit * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    # An episode's own mean minus its leave-one-out advantage is the mean of the others.

    others = means - rloo(means, group, valid)
    is_alone = per_group(lambda v: torch.full_like(v, float(len(v) < 2)), means, group, valid) > 0
    process = torch.where(is_alone[:, None], 0.0, implicit - others[:, None])
    return (outcome[:, None] + returns_to_go(process * mask, mask, discount)) * mask
