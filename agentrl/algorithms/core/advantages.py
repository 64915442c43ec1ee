"""The advantages of a training step, and metrics about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import AdvantageResult, Algorithm, method_boundary
from agentrl.algorithms.core.statistics import distinct, whiten
from agentrl.errors import ConfigError

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
