"""Advantage estimators, as pure functions of tensors.

Shapes: E episodes of a training step; T turns of the longest; N sampled tokens of the longest, in
the order in which they were sampled, whatever lay between them. `mask` is True where there is such
a turn or token; what a function is given where it is False has no influence, and what it returns
there is 0.

Group-relative estimators take `group`, int64[E], equal for siblings, and `valid`, bool[E]: episodes
without a valid reward (a phone that failed) are left out of all statistics and get 0.

What is alone is compared with nothing and gets 0: an episode of its group where whole episodes are
compared, a turn at its state in `gigpo`. Turns are compared with others of their own episode as
well: `turn_grpo` teaches from an episode alone, `gigpo` where it comes to a state again. Whitening
comes after and takes the mean of the batch from all, so that 0 may become another number.

Adding a constant to the last reward of every episode of a group changes nothing where whole
episodes are compared (`grpo`, `dr_grpo`, `rloo`, `reinforce_pp_baseline`, `prime`). Of `turn_grpo`
and `gigpo` it changes nothing where the discount is 1, or the turns that are compared have equally
many turns to come; else the constant is discounted by different amounts.
"""

from collections.abc import Callable

import torch
from torch import Tensor

EPSILON = 1e-6
"""Added to standard deviations."""


# --- statistics -------------------------------------------------------------------------------


def normalised(values: Tensor) -> Tensor:
    """[G] (x - mean) / (std + 1e-6), ddof 1; all 0 for one value, or for equal ones."""
    # Compared exactly: the mean of equal numbers may be off by an ulp, and would be normalised.
    if len(values) < 2 or bool((values == values[0]).all()):
        return torch.zeros_like(values)
    return (values - values.mean()) / (values.std() + EPSILON)


def centred(values: Tensor) -> Tensor:
    """[G] x - mean; all 0 for equal values."""
    if not len(values) or bool((values == values[0]).all()):
        return torch.zeros_like(values)
    return values - values.mean()


def within(
    compare: Callable[[Tensor], Tensor], values: Tensor, group: Tensor, valid: Tensor
) -> Tensor:
    """`compare` applied to the valid values of each group; 0 elsewhere.

    Args:
        compare: [G] to [G].
        values: of any shape.
        group: of the same, equal for siblings.
        valid: bool, of the same.
    """
    result = torch.zeros_like(values)
    for name in torch.unique(group[valid]):
        members = (group == name) & valid
        result[members] = compare(values[members])
    return result


def whitened(values: Tensor, mask: Tensor) -> Tensor:
    """`values` at mean 0 and standard deviation 1 (ddof 1) over the mask of the whole batch."""
    result = torch.zeros_like(values)
    result[mask] = normalised(values[mask])
    return result


def returns_to_go(rewards: Tensor, mask: Tensor, discount: Tensor | float = 1.0) -> Tensor:
    """[E, N] G_t = r_t + discount_t G_(t+1), over the mask.

    A place outside the mask neither resets nor discounts what is carried over it.

    Args:
        rewards: [E, N]
        mask: bool[E, N]
        discount: one number, or [E, N]: what lies after a place counts so much.
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
    """[E] (R - mean) / (std + 1e-6) among siblings.

    Source: DeepSeekMath, arXiv:2402.03300, section 4.1.
    """
    return within(normalised, returns, group, valid)


def dr_grpo(returns: Tensor, group: Tensor, valid: Tensor) -> Tensor:
    """[E] R - mean among siblings: not divided, as that prefers questions that are hardly open.

    Source: Understanding R1-Zero-Like Training, arXiv:2503.20783.
    """
    return within(centred, returns, group, valid)


def rloo(returns: Tensor, group: Tensor, valid: Tensor) -> Tensor:
    """[E] R - mean of the others, which is n/(n-1) (R - mean).

    Source: Back to Basics, arXiv:2402.14740.
    """

    def leave_one_out(values: Tensor) -> Tensor:
        n = len(values)
        return centred(values) * (n / (n - 1)) if n > 1 else torch.zeros_like(values)

    return within(leave_one_out, returns, group, valid)


# --- one number for a turn --------------------------------------------------------------------


def turn_grpo(
    rewards: Tensor, mask: Tensor, group: Tensor, valid: Tensor, discount: float
) -> Tensor:
    """[E, T] every turn compared with all turns of the group, by what came from it on.

    The returns of REINFORCE++ (arXiv:2501.03262), a turn for a token, normalised over the group. It
    asks for no company, and takes a state that promises more for a better move: with a discount
    well below 1 and rewards that come at once that hardly matters.

    Args:
        rewards: [E, T]
        mask: bool[E, T]
        group: int64[E], equal for siblings.
        valid: bool[E]
        discount: of what comes a turn later.
    """
    to_go = returns_to_go(rewards, mask, discount)
    return within(normalised, to_go, group[:, None].expand_as(mask), mask & valid[:, None])


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
    """[E, T] a weighted sum of the episode's advantage and of the turn's among equal states.

    The turn's is that of the discounted return from there on, normalised among the turns of the
    group that start from the same state; 0 where a turn is alone there. An episode's return counts
    once, however many turns it has.

    Source: Group-in-Group Policy Optimization, arXiv:2505.10978.

    Args:
        rewards: [E, T]
        mask: bool[E, T]
        states: int64[E, T], equal for equal states of one group; negative where a state has no
            name.
        group: int64[E], equal for siblings.
        valid: bool[E]
        discount: of what comes a turn later.
        episode_weight: of the episode's advantage; the paper's is 1.
        state_weight: of the turn's among equal states; the paper's is 1.
    """
    to_go = returns_to_go(rewards, mask, discount)
    met = mask & valid[:, None] & (states >= 0)
    # Names are those of a group: the same state of another group is another one.
    place = torch.where(met, group[:, None] * (states.max() + 1) + states, -1)
    alike = within(normalised, to_go, place, met)
    whole = grpo((rewards * mask).sum(-1), group, valid)[:, None]
    return (episode_weight * whole + state_weight * alike) * mask


# --- one number for a token -------------------------------------------------------------------


def reinforce_pp(
    rewards: Tensor, mask: Tensor, valid: Tensor, discount: Tensor | float = 1.0
) -> Tensor:
    """[E, N] returns to go, whitened over the batch.

    Tokens that were not sampled neither end nor discount a return: a turn is credited with what
    the later ones earn.

    Source: REINFORCE++, arXiv:2501.03262.

    Args:
        rewards: [E, N], of tokens.
        mask: bool[E, N]
        valid: bool[E]
        discount: a number, or one for each token.
    """
    mask = mask & valid[:, None]
    return whitened(returns_to_go(rewards, mask, discount), mask)


def reinforce_pp_baseline(returns: Tensor, mask: Tensor, group: Tensor, valid: Tensor) -> Tensor:
    """[E, N] R - mean among siblings for each token, whitened over the batch.

    Source: REINFORCE++, arXiv:2501.03262 (the variant with a baseline).

    Args:
        returns: [E]
        mask: bool[E, N]
        group: int64[E], equal for siblings.
        valid: bool[E]
    """
    spread = within(centred, returns, group, valid)[:, None].expand(mask.shape)
    return whitened(spread, mask & valid[:, None])


def remax(
    rewards: Tensor, mask: Tensor, valid: Tensor, greedy: Tensor, discount: Tensor | float = 1.0
) -> Tensor:
    """[E, N] returns to go, less what the greedy policy earned on the same seed.

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
    """Generalised advantage estimation over the sampled tokens.

    delta_t = r_t + discount V_(t+1) - V_t and A_t = delta_t + discount lam A_(t+1), where both
    V and A are carried over places outside the mask.

    Source: arXiv:1506.02438.

    Args:
        rewards: [E, N], of tokens.
        values: [E, N], of the state before each token.
        mask: bool[E, N]
        last_values: [E], of the state after the last token: 0 where the episode terminated, and
            the critic's where a limit truncated it.
        discount: a number, or one for each token.
        lam: the decay lambda.

    Returns:
        Advantages, not whitened, and the returns that a critic learns, A + V; [E, N] each.
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
    """Generalised advantage estimation over turns first, then over the tokens of each turn.

    Over the last tokens of the turns, with `turn_discount` and `turn_lam`; a turn's last token
    then gets the turn's return as its reward, and the tokens before it in the same turn are
    estimated with `discount` and `lam`, from the turn's end and never beyond it.

    Source: VAGEN (bi-level GAE), arXiv:2510.16907.

    Args:
        rewards: [E, N], of tokens.
        values: [E, N], of the state before each token.
        mask: bool[E, N]
        turn: int64[E, N], the turn of each token, rising along an episode.
        last_values: [E], as for `gae`.
        turn_discount: from turn to turn.
        turn_lam: the decay lambda over turns.
        discount: from token to token of a turn.
        lam: the decay lambda over the tokens of a turn.

    Returns:
        Advantages, not whitened, and the returns that a critic learns, A + V; [E, N] each.
    """
    ends = last_of_turns(mask, turn)
    # What a turn's tokens earn before its end lies behind its end, and ahead of the turn before.
    ahead = torch.zeros_like(last_values)
    totals = torch.zeros_like(rewards)
    for t in reversed(range(rewards.shape[1])):
        totals[:, t] = (rewards[:, t] + turn_discount * ahead) * ends[:, t]
        ahead = torch.where(ends[:, t], 0.0, ahead + rewards[:, t] * mask[:, t])
    of_turns, _ = gae(totals, values, ends, last_values, turn_discount, turn_lam)
    advantages = torch.zeros_like(rewards)
    following, carried = torch.zeros_like(last_values), torch.zeros_like(last_values)
    for t in reversed(range(rewards.shape[1])):
        here, end = mask[:, t], ends[:, t]
        delta = rewards[:, t] + discount * following - values[:, t]
        within_turn = torch.where(end, of_turns[:, t], delta + discount * lam * carried)
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
    """[E, N] leave-one-out advantages of the outcome, and of an implicit process reward.

    The implicit reward of a token is beta log(pi_rm / pi_ref) under a reward model that is trained
    on outcomes alone. From each the mean over the tokens of the others' episodes is taken, the
    mean of their means; what remains is summed from each token on.

    Source: PRIME, arXiv:2502.01456, equation 5.

    Args:
        rewards: [E, N], of tokens.
        implicit: [E, N], the process reward of each token.
        mask: bool[E, N]
        group: int64[E], equal for siblings.
        valid: bool[E]
        discount: of later tokens' process rewards.
    """
    mask = mask & valid[:, None]
    outcome = rloo((rewards * mask).sum(-1), group, valid)
    means = (implicit * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    # An episode's own mean less its leave-one-out advantage is the mean of the others.
    others = means - rloo(means, group, valid)
    alone = within(lambda v: torch.full_like(v, float(len(v) < 2)), means, group, valid) > 0
    process = torch.where(alone[:, None], 0.0, implicit - others[:, None])
    return (outcome[:, None] + returns_to_go(process * mask, mask, discount)) * mask
