"""The advantage of every sampled token of a training step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentrl.algorithms import estimators
from agentrl.algorithms.trajectories import Trajectories
from agentrl.config import AlgorithmConfig
from agentrl.errors import ConfigError
from agentrl.types import ScoredEpisode

Estimator = Callable[[Trajectories, AlgorithmConfig], Tensor | tuple[Tensor, Tensor]]
"""Returns advantages, float64[E, N], and the critic's targets if there is a critic."""


@dataclass(slots=True, kw_only=True, frozen=True)
class AdvantageResult:
    """Advantages, and the targets of the critic."""

    advantages: Tensor
    """float64[E, N]"""
    returns: Tensor | None = None
    """float64[E, N], the critic's targets; None without a critic."""


def compute_advantages(played: Trajectories, config: AlgorithmConfig) -> AdvantageResult:
    """Estimate advantages by `algorithm.estimator`, whitened if `algorithm.whiten`."""
    result = ESTIMATORS[config.estimator](played, config)
    advantages, returns = result if isinstance(result, tuple) else (result, None)
    if config.whiten:
        advantages = estimators.whiten(advantages, played.token_mask)
    return AdvantageResult(advantages=advantages, returns=returns)


def _per_episode(
    estimate: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> Estimator:
    def apply(played: Trajectories, config: AlgorithmConfig) -> Tensor:
        return played.to_tokens(estimate(played.returns, played.group, played.valid))

    return apply


def _turn_grpo(played: Trajectories, config: AlgorithmConfig) -> Tensor:
    result = estimators.turn_grpo(
        played.turn_rewards, played.turn_mask, played.group, played.valid, config.discount
    )
    return played.to_tokens(result)


def _gigpo(played: Trajectories, config: AlgorithmConfig) -> Tensor:
    return _compare_by_state(played, config, config.episode_weight, config.state_weight)


def _state_grpo(played: Trajectories, config: AlgorithmConfig) -> Tensor:
    """Compare turns at equal states if every turn of a group has a state key, else episodes."""
    has_unknown = ((played.states < 0) & played.turn_mask & played.valid[:, None]).any(-1)
    fall_back = torch.isin(played.group, played.group[has_unknown])
    states = _compare_by_state(played, config, 0.0, 1.0)
    episodes = played.to_tokens(estimators.grpo(played.returns, played.group, played.valid))
    return torch.where(fall_back[:, None], episodes, states)


def _compare_by_state(
    played: Trajectories, config: AlgorithmConfig, episode_weight: float, state_weight: float
) -> Tensor:
    result = estimators.gigpo(
        played.turn_rewards,
        played.turn_mask,
        played.states,
        played.group,
        played.valid,
        config.discount,
        episode_weight,
        state_weight,
    )
    return played.to_tokens(result)


def _reinforce_pp(played: Trajectories, config: AlgorithmConfig) -> Tensor:
    return estimators.reinforce_pp(
        played.rewards, played.token_mask, played.valid, _discounts(played, config)
    )


def _reinforce_pp_baseline(played: Trajectories, config: AlgorithmConfig) -> Tensor:
    return estimators.reinforce_pp_baseline(
        played.returns, played.token_mask, played.group, played.valid
    )


def _remax(played: Trajectories, config: AlgorithmConfig) -> Tensor:
    return estimators.remax(
        played.rewards, played.token_mask, played.valid, played.greedy, _discounts(played, config)
    )


def _gae(played: Trajectories, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    return estimators.gae(
        played.rewards,
        played.values,
        played.token_mask,
        played.last_values,
        _discounts(played, config),
        config.gae_lambda,
    )


def _turn_gae(played: Trajectories, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    return estimators.turn_gae(
        played.rewards,
        played.values,
        played.token_mask,
        played.turn_index,
        played.last_values,
        config.discount,
        config.turn_gae_lambda,
        config.token_discount,
        config.gae_lambda,
    )


def _prime(played: Trajectories, config: AlgorithmConfig) -> Tensor:
    return estimators.prime(
        played.rewards,
        played.implicit,
        played.token_mask,
        played.group,
        played.valid,
        _discounts(played, config),
    )


def _discounts(played: Trajectories, config: AlgorithmConfig) -> Tensor:
    return played.discounts(config.discount, config.token_discount)


ESTIMATORS: dict[str, Estimator] = {
    "grpo": _per_episode(estimators.grpo),
    "dr_grpo": _per_episode(estimators.dr_grpo),
    "rloo": _per_episode(estimators.rloo),
    "turn_grpo": _turn_grpo,
    "state_grpo": _state_grpo,
    "gigpo": _gigpo,
    "reinforce_pp": _reinforce_pp,
    "reinforce_pp_baseline": _reinforce_pp_baseline,
    "remax": _remax,
    "gae": _gae,
    "turn_gae": _turn_gae,
    "prime": _prime,
}


def check_state_keys(groups: Sequence[Sequence[ScoredEpisode]], config: AlgorithmConfig) -> None:
    """Check that turns can be compared at equal states if the estimator requires it.

    Raises:
        ConfigError: the estimator is `gigpo`, and no turn has a state key.
    """
    turns = [
        turn for group in groups for s in group if not s.episode.outcome.void
        for turn in s.episode.turns
    ]  # fmt: skip
    if config.estimator == "gigpo" and turns and all(turn.state_key is None for turn in turns):
        raise ConfigError(
            f"algorithm.estimator=gigpo: {groups[0][0].episode.env_id} provides no state keys "
            "(info['state_key']); set env.state_key=screen to compare screens instead"
        )


def state_match_fraction(played: Trajectories) -> float:
    """Fraction of valid turns whose state another turn of the group has, too; 0 without turns."""
    valid = played.turn_mask & played.valid[:, None]
    has_state = valid & (played.states >= 0)
    if not has_state.any():
        return 0.0
    state = played.group[:, None] * (played.states.max() + 1) + played.states
    _, counts = torch.unique(state[has_state], return_counts=True)
    return float(counts[counts > 1].sum() / valid.sum())


def zero_advantage_groups(advantages: Tensor, group: Tensor) -> float:
    """Fraction of the groups in which all advantages are 0."""
    names = torch.unique(group)
    zero = sum(not bool(advantages[group == name].any()) for name in names)
    return zero / max(1, len(names))
