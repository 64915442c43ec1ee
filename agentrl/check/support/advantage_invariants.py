"""Invariants of every algorithm's advantages, as assertions about given episodes.

They are numbered as in docs/algorithms.md.
"""

from collections.abc import Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor

from agentrl.algorithms.core.advantages import compute_advantages
from agentrl.algorithms.core.algorithm import Algorithm
from agentrl.algorithms.core.trajectories import Trajectories
from agentrl.check.support.sample_steps import (
    GREEDY,
    Groups,
    layouts,
    scores_of_sequences,
    trajectories,
)
from agentrl.training.trainer.training_samples import build_training_samples
from agentrl.types import ScoredEpisode

TOLERANCE = 1e-6


def form_invariant(algorithm: Algorithm, groups: Groups) -> None:
    """Advantages are finite float64[E, N], 0 outside the mask and for void episodes.

    The inputs are unchanged, and equal inputs give equal advantages.
    """
    played = trajectories(groups)
    before = {field.name: getattr(played, field.name).clone() for field in fields(played)}
    result = compute_advantages(played, algorithm)
    for name, value in before.items():
        assert getattr(played, name).equal(value), (
            f"advantages() changed its input {name}; work on a copy"
        )
    _check_form("the advantages", result.advantages, played)
    if algorithm.requires.critic is not None:
        assert result.returns is not None, (
            "requires has a critic, but advantages() returns no targets for it; return "
            "AdvantageResult(advantages=..., returns=...)"
        )
        _check_form("the critic's targets", result.returns, played)
    again = compute_advantages(played, algorithm).advantages
    assert again.equal(result.advantages), (
        "advantages() returns different values for the same input"
    )


def layout_invariant(algorithm: Algorithm, groups: Groups) -> None:
    """1: conversations, windows of turns and one sample per turn give the same advantages."""
    seen = [_trained_tokens(algorithm, laid_out) for laid_out in layouts(groups)]
    names = ("one conversation", "windows of two turns", "one prompt per turn")
    for name, tokens in zip(names[1:], seen[1:], strict=True):
        assert tokens == seen[0], (
            f"tokens or advantages of an episode differ between {name} and {names[0]}: "
            f"{_first_difference(seen[0], tokens)}"
        )


def mask_invariant(algorithm: Algorithm, groups: Groups, noise: float) -> None:
    """3: tensor values at tokens that were not sampled have no influence."""
    played = trajectories(groups)
    filled = {
        name: torch.where(played.token_mask, getattr(played, name), noise)
        for name in ("rewards", "values", "implicit", "teacher")
    }
    expected = compute_advantages(played, algorithm)
    found = compute_advantages(replace(played, **filled), algorithm)
    _assert_same(
        found.advantages, expected.advantages, "values outside token_mask influence advantages"
    )
    if expected.returns is not None and found.returns is not None:
        _assert_same(
            found.returns, expected.returns, "values outside token_mask influence the targets"
        )


def shift_invariant(algorithm: Algorithm, groups: Groups, shift: float) -> None:
    """4: adding a constant to the last reward of every episode of a group changes nothing.

    For algorithms that compare siblings; if they compare turns, at `discount` 1.
    """
    moved = [[last_raised(one, shift) for one in group] for group in groups]
    # Model scores are derived from the rewards; both computations need the same scores.
    own = trajectories(groups)
    raised = replace(
        trajectories(moved), values=own.values, implicit=own.implicit, teacher=own.teacher
    )
    found, expected = compute_advantages(raised, algorithm), compute_advantages(own, algorithm)
    _assert_same(
        found.advantages,
        expected.advantages,
        f"it compares {algorithm.compares}, but adding {shift:g} to the last reward of every "
        "episode changes advantages",
    )


def order_invariant(algorithm: Algorithm, groups: Groups, orders: Sequence[Sequence[int]]) -> None:
    """5: permuting episodes permutes advantages.

    Args:
        algorithm: the algorithm to check.
        groups: the groups of a step.
        orders: a permutation of each group's members.
    """
    mixed = [[group[i] for i in order] for group, order in zip(groups, orders, strict=True)]
    straight, permuted = (compute_advantages(trajectories(g), algorithm) for g in (groups, mixed))
    start, rows = 0, []
    for order in orders:
        rows += [start + member for member in order]
        start += len(order)
    _assert_same(
        permuted.advantages,
        straight.advantages[rows],
        "advantages depend on the order of the episodes",
    )


def void_invariant(algorithm: Algorithm, groups: Groups) -> None:
    """Episodes ended by an infrastructure fault do not influence the others."""
    valid = [[one for one in group if not one.episode.outcome.void] for group in groups]
    kept = [group for group in valid if group]
    if not kept:
        return
    played, alone = trajectories(groups), trajectories(kept)
    found = compute_advantages(played, algorithm).advantages
    expected = compute_advantages(alone, algorithm).advantages
    _assert_same(
        found[played.valid][:, : expected.shape[1]],
        expected,
        "void episodes influence the advantages of others",
    )


def resample_invariant(algorithm: Algorithm, groups: Groups, seed: int) -> None:
    """Resampled episodes are valid, and the same for the same seed."""
    episodes = [one for group in groups for one in group]
    returns = [one.reward for one in episodes]
    valid = [not one.episode.outcome.void for one in episodes]
    drawn = algorithm.resample(returns, valid, seed)
    again = algorithm.resample(returns, valid, seed)
    assert drawn == again, "resample() must depend only on its arguments, which include the seed"
    if drawn is None:
        return
    assert drawn == sorted(drawn), f"resample() must return ascending indices, not {drawn}"
    assert all(0 <= index < len(valid) and valid[index] for index in drawn), (
        f"resample() returns {drawn}, but only episodes "
        f"{[index for index, ok in enumerate(valid) if ok]} are valid"
    )


def last_raised(scored: ScoredEpisode, shift: float) -> ScoredEpisode:
    """Return the episode with its last reward increased by `shift`."""

    def raised(values: Sequence[float]) -> tuple[float, ...]:
        return (*values[:-1], values[-1] + shift)

    # The first reward function pays the difference; its weight is 1.
    own = {name: raised(scored.components[name]) for name in list(scored.weights)[:1]}
    return replace(scored, rewards=raised(scored.rewards), components={**scored.components, **own})


def _check_form(what: str, values: Tensor, played: Trajectories) -> None:
    shape = tuple(played.token_mask.shape)
    assert isinstance(values, Tensor), f"{what} are {type(values).__name__}, not a tensor"
    assert tuple(values.shape) == shape, (
        f"{what} must have shape {list(shape)}, one number per sampled token, not "
        f"{list(values.shape)} (Trajectories.to_tokens expands numbers of episodes or turns)"
    )
    assert values.dtype == torch.float64, f"{what} must be torch.float64, not {values.dtype}"
    assert bool(values.isfinite().all()), f"{what} must be finite, not {values.tolist()}"
    assert not values[~played.token_mask].any(), (
        f"{what} must be 0 outside token_mask, where no valid token was sampled"
    )


def _trained_tokens(
    algorithm: Algorithm, groups: Groups
) -> list[tuple[int, int, int, float, float]]:
    """Return episode, turn, token, advantage and target of every trained token."""
    built = build_training_samples(
        groups,
        algorithm,
        lambda sequences: scores_of_sequences(groups, sequences),
        max_new_tokens=8,
        version=0,
        seed=0,
        greedy=[GREEDY] * len(groups),
        kl_coefficient=0.1,
    )
    # Round, because sums in a different order differ in their last bits.
    return [
        (sample.episode, turn, sample.token_ids[at], round(advantage, 9), round(target, 9))
        for sample in built.samples
        for turn, at, advantage, target in zip(
            sample.turns,
            sample.sampled_positions,
            sample.advantages,
            sample.returns or (0.0,) * len(sample.turns),
            strict=True,
        )
    ]


def _first_difference(expected: Sequence[object], found: Sequence[object]) -> str:
    pairs = zip(expected, found, strict=False)
    return next(
        (f"{one} and {other}" for one, other in pairs if one != other),
        f"{len(expected)} and {len(found)} tokens",
    )


def _assert_same(found: Tensor, expected: Tensor, message: str) -> None:
    if not found.numel():
        return
    difference, most = float((found - expected).abs().max()), float(expected.abs().max())
    assert difference <= TOLERANCE * max(1.0, most), f"{message}, by up to {difference:.3g}"
