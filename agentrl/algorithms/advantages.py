"""Who deserves what: the advantage of every sampled token of a training step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentrl.algorithms import estimators
from agentrl.algorithms.trajectories import Trajectories
from agentrl.config import AlgorithmConfig
from agentrl.errors import ConfigError
from agentrl.types import ScoredEpisode


@dataclass(slots=True, kw_only=True, frozen=True)
class Credit:
    """What a step's tokens deserve."""

    advantages: Tensor
    """float64[E, N]"""
    returns: Tensor | None = None
    """float64[E, N], what a critic learns; None without one."""


def credit(played: Trajectories, config: AlgorithmConfig) -> Credit:
    """Advantages as `algorithm.estimator` finds them."""
    found = ESTIMATORS[config.estimator](played, config)
    if not config.whiten:
        return found
    white = estimators.whitened(found.advantages, played.tokens)
    return Credit(advantages=white, returns=found.returns)


def _of_episodes(
    estimate: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> Callable[[Trajectories, AlgorithmConfig], Credit]:
    def apply(played: Trajectories, config: AlgorithmConfig) -> Credit:
        found = estimate(played.returns, played.group, played.valid)
        return Credit(advantages=played.to_tokens(found))

    return apply


def _turn_grpo(played: Trajectories, config: AlgorithmConfig) -> Credit:
    found = estimators.turn_grpo(
        played.turn_rewards, played.turns, played.group, played.valid, config.discount
    )
    return Credit(advantages=played.to_tokens(found))


def _gigpo(played: Trajectories, config: AlgorithmConfig) -> Credit:
    return _by_state(played, config, config.episode_weight, config.state_weight)


def _state_grpo(played: Trajectories, config: AlgorithmConfig) -> Credit:
    """Turns at equal states where every turn of a group has a state's name; else episodes."""
    nameless = ((played.states < 0) & played.turns & played.valid[:, None]).any(-1)
    whole = torch.isin(played.group, played.group[nameless])
    states = _by_state(played, config, 0.0, 1.0).advantages
    episodes = played.to_tokens(estimators.grpo(played.returns, played.group, played.valid))
    return Credit(advantages=torch.where(whole[:, None], episodes, states))


def _by_state(
    played: Trajectories, config: AlgorithmConfig, episode_weight: float, state_weight: float
) -> Credit:
    found = estimators.gigpo(
        played.turn_rewards,
        played.turns,
        played.states,
        played.group,
        played.valid,
        config.discount,
        episode_weight,
        state_weight,
    )
    return Credit(advantages=played.to_tokens(found))


def _reinforce_pp(played: Trajectories, config: AlgorithmConfig) -> Credit:
    found = estimators.reinforce_pp(
        played.rewards, played.tokens, played.valid, _discounts(played, config)
    )
    return Credit(advantages=found)


def _reinforce_pp_baseline(played: Trajectories, config: AlgorithmConfig) -> Credit:
    found = estimators.reinforce_pp_baseline(
        played.returns, played.tokens, played.group, played.valid
    )
    return Credit(advantages=found)


def _remax(played: Trajectories, config: AlgorithmConfig) -> Credit:
    found = estimators.remax(
        played.rewards, played.tokens, played.valid, played.greedy, _discounts(played, config)
    )
    return Credit(advantages=found)


def _gae(played: Trajectories, config: AlgorithmConfig) -> Credit:
    advantages, returns = estimators.gae(
        played.rewards,
        played.values,
        played.tokens,
        played.last_values,
        _discounts(played, config),
        config.gae_lambda,
    )
    return Credit(advantages=advantages, returns=returns)


def _turn_gae(played: Trajectories, config: AlgorithmConfig) -> Credit:
    advantages, returns = estimators.turn_gae(
        played.rewards,
        played.values,
        played.tokens,
        played.turn,
        played.last_values,
        config.discount,
        config.turn_gae_lambda,
        config.token_discount,
        config.gae_lambda,
    )
    return Credit(advantages=advantages, returns=returns)


def _prime(played: Trajectories, config: AlgorithmConfig) -> Credit:
    found = estimators.prime(
        played.rewards,
        played.implicit,
        played.tokens,
        played.group,
        played.valid,
        _discounts(played, config),
    )
    return Credit(advantages=found)


def _discounts(played: Trajectories, config: AlgorithmConfig) -> Tensor:
    return played.discounts(config.discount, config.token_discount)


ESTIMATORS: dict[str, Callable[[Trajectories, AlgorithmConfig], Credit]] = {
    "grpo": _of_episodes(estimators.grpo),
    "dr_grpo": _of_episodes(estimators.dr_grpo),
    "rloo": _of_episodes(estimators.rloo),
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


def check_states(groups: Sequence[Sequence[ScoredEpisode]], config: AlgorithmConfig) -> None:
    """Whether turns can be compared at equal states, where nothing else is asked for.

    Raises:
        ConfigError: `gigpo` is asked for, and no state has a name.
    """
    turns = [
        turn for group in groups for s in group if not s.episode.outcome.void
        for turn in s.episode.turns
    ]  # fmt: skip
    if config.estimator == "gigpo" and turns and all(turn.state_key is None for turn in turns):
        raise ConfigError(
            f"algorithm.estimator=gigpo: {groups[0][0].episode.env_id} names no state "
            "(info['state_key']); env.state_key=screen takes what the screen looks like"
        )


def company(played: Trajectories) -> float:
    """Share of the turns of valid episodes that meet another at the same state; 0 without turns."""
    there = played.turns & played.valid[:, None]
    named = there & (played.states >= 0)
    if not named.any():
        return 0.0
    place = played.group[:, None] * (played.states.max() + 1) + played.states
    _, counts = torch.unique(place[named], return_counts=True)
    return float(counts[counts > 1].sum() / there.sum())
