"""The advantages of a training step, and metrics about them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import AdvantageResult, Algorithm
from agentrl.algorithms.core.statistics import distinct, whiten
from agentrl.errors import ConfigError, LearnerError, boundary
from agentrl.types import ScoredEpisode

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories


def compute_advantages(played: Trajectories, algorithm: Algorithm) -> AdvantageResult:
    """Compute the algorithm's advantages, and whiten them if `algorithm.whiten` is set."""
    with method_boundary(algorithm, "advantages"):
        result = algorithm.advantages(played)
    # The method may be user code, so check what it returns.
    if not isinstance(result, AdvantageResult):
        result = AdvantageResult(advantages=result)
    if not hasattr(result.advantages, "shape"):
        raise ConfigError(
            f"algorithm.name={algorithm.config.name}: advantages() returned "
            f"{type(result.advantages).__name__}, but must return a tensor or an AdvantageResult"
        )
    shape, expected = list(result.advantages.shape), list(played.token_mask.shape)
    if shape != expected:
        raise ConfigError(
            f"algorithm.name={algorithm.config.name}: advantages() returned shape {shape}, but "
            f"must return {expected}, one number for each sampled token (Trajectories.to_tokens "
            "expands one number per episode or turn)"
        )
    if not algorithm.config.whiten:
        return result
    advantages = whiten(result.advantages, played.token_mask)
    return AdvantageResult(advantages=advantages, returns=result.returns)


def method_boundary(algorithm: Algorithm, method: str) -> AbstractContextManager[None]:
    """Convert exceptions in an algorithm's method to a LearnerError that names the method."""
    return boundary(LearnerError, f"algorithm.name={algorithm.config.name}: {method}() fails")


def check_state_keys(groups: Sequence[Sequence[ScoredEpisode]], algorithm: Algorithm) -> None:
    """Raise `ConfigError` if the algorithm compares equal states and no turn has a state key."""
    turns = [
        turn for group in groups for s in group if not s.episode.outcome.void
        for turn in s.episode.turns
    ]  # fmt: skip
    if algorithm.requires.state_keys and turns and all(turn.state_key is None for turn in turns):
        raise ConfigError(
            f"algorithm.name={algorithm.config.name}: {groups[0][0].episode.env_id} provides no "
            "state keys (info['state_key']); set env.state_key=screen to compare screens instead"
        )


def state_match_fraction(played: Trajectories) -> float | None:
    """Return the fraction of valid turns whose state recurs in the group; None without any keys."""
    valid = played.turn_mask & played.valid[:, None]
    has_state = valid & (played.states >= 0)
    if not has_state.any():
        return None
    # State numbers are unique only within a group.
    state = played.group[:, None] * (played.states.max() + 1) + played.states
    _, counts = state[has_state].unique(return_counts=True)  # type: ignore[no-untyped-call]
    return float(counts[counts > 1].sum() / valid.sum())


def zero_advantage_groups(advantages: Tensor, group: Tensor) -> float:
    """Return the fraction of groups whose advantages are all 0."""
    names = distinct(group)
    zero = sum(not bool(advantages[group == name].any()) for name in names)
    return zero / max(1, len(names))
