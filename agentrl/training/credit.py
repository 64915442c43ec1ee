"""Who deserves what: the advantage of each turn over its siblings.

Shapes: G episodes of a group; T turns of an episode; K turns that start from one state.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from agentrl.config import AlgorithmConfig
from agentrl.errors import ConfigError
from agentrl.types import ScoredEpisode

EPSILON = 1e-6
"""Added to the standard deviation (GRPO)."""


def group_normalised(rewards: Tensor, valid: Tensor) -> Tensor:
    """Advantage of each episode over its siblings (GRPO, arXiv:2402.03300, section 4.1).

    Args:
        rewards: [G] one scalar per episode of one group.
        valid: bool[G], False for episodes without a valid reward: they are left out of mean and
            standard deviation.

    Returns:
        [G] float64, (R - mean) / (std + 1e-6) with ddof 1; 0 where not valid, and all zeros when
        fewer than two are valid or all valid rewards are equal.

    Raises:
        ValueError: G < 1.
    """
    if len(rewards) < 1:
        raise ValueError("a group needs at least one episode")
    result = torch.zeros(len(rewards), dtype=torch.float64)
    counted = rewards[valid].double()
    # Compared exactly: the mean of equal numbers may be off by an ulp, and would be normalised.
    if len(counted) < 2 or bool((counted == counted[0]).all()):
        return result
    result[valid] = (counted - counted.mean()) / (counted.std() + EPSILON)
    return result


def returns_to_go(rewards: Sequence[float], discount: float) -> list[float]:
    """[T] G_t = r_t + discount * G_(t+1): what came from each turn on."""
    result = [0.0] * len(rewards)
    following = 0.0
    for turn in reversed(range(len(rewards))):
        following = rewards[turn] + discount * following
        result[turn] = following
    return result


def by_episode(group: Sequence[ScoredEpisode]) -> list[list[float]]:
    """Siblings compared by their whole return; every turn of an episode gets the same.

    Returns:
        [G][T]
    """
    rewards = torch.tensor([scored.total for scored in group], dtype=torch.float64)
    valid = torch.tensor([not scored.episode.outcome.void for scored in group])
    per_episode = group_normalised(rewards, valid).tolist()
    return [
        [value] * len(scored.episode.turns)
        for value, scored in zip(per_episode, group, strict=True)
    ]


def by_state(group: Sequence[ScoredEpisode], discount: float) -> list[list[float]]:
    """Siblings compared at the same state, by what came after it (GiGPO, arXiv:2505.10978).

    Turns that start from equal `state_key`s are normalised among themselves by their discounted
    return from there; a turn that finds no company gets 0.

    Returns:
        [G][T]; 0 for every turn of a void episode.
    """
    return _among(_meetings(group).values(), group, discount)


def by_turn(group: Sequence[ScoredEpisode], discount: float) -> list[list[float]]:
    """Every turn compared with all turns of the group, by what came after it.

    The returns of REINFORCE++ (arXiv:2501.03262), a turn for a token, normalised over the group. It
    asks for no company, and takes a state that promises more for a better move: with a discount
    well below 1 and rewards that come at once that hardly matters.

    Returns:
        [G][T]; 0 for every turn of a void episode.
    """
    turns = [
        (g, t)
        for g, scored in enumerate(group)
        if not scored.episode.outcome.void
        for t in range(len(scored.episode.turns))
    ]
    return _among([turns], group, discount)


def _among(
    places: Iterable[Sequence[tuple[int, int]]], group: Sequence[ScoredEpisode], discount: float
) -> list[list[float]]:
    """[G][T] the discounted returns, normalised among the turns of each list; 0 for all others."""
    result = [[0.0] * len(scored.episode.turns) for scored in group]
    returns = [returns_to_go(scored.rewards, discount) for scored in group]
    for turns in places:
        values = torch.tensor([returns[g][t] for g, t in turns], dtype=torch.float64)
        if not len(values):
            continue
        advantages = group_normalised(values, torch.ones(len(values), dtype=torch.bool))
        for (g, t), value in zip(turns, advantages.tolist(), strict=True):
            result[g][t] = value
    return result


def _meetings(group: Sequence[ScoredEpisode]) -> dict[str, list[tuple[int, int]]]:
    """The (episode, turn) pairs of valid episodes that start from each named state."""
    places: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for g, scored in enumerate(group):
        if scored.episode.outcome.void:
            continue
        for t, turn in enumerate(scored.episode.turns):
            if turn.state_key is not None:
                places[turn.state_key].append((g, t))
    return places


def company(group: Sequence[ScoredEpisode]) -> float:
    """Share of the turns of valid episodes that meet another at the same state; 0 without turns."""
    turns = sum(len(s.episode.turns) for s in group if not s.episode.outcome.void)
    met = sum(len(places) for places in _meetings(group).values() if len(places) > 1)
    return met / turns if turns else 0.0


def group_relative(group: Sequence[ScoredEpisode], config: AlgorithmConfig) -> list[list[float]]:
    """Advantages by state, by turn or by whole episodes, as `algorithm.compare` says.

    `auto` compares states where the environment names one for every turn.

    Returns:
        [G][T]

    Raises:
        ConfigError: states are asked for and a turn has none.
    """
    turns = [t for s in group if not s.episode.outcome.void for t in s.episode.turns]
    named = bool(turns) and all(turn.state_key is not None for turn in turns)
    if config.compare == "state" and turns and not named:
        raise ConfigError(
            f"algorithm.compare=state: {group[0].episode.env_id} does not name the state of every "
            "turn (info['state_key']); use algorithm.compare=episode, or auto"
        )
    if config.compare == "turn":
        return by_turn(group, config.discount)
    if config.compare == "episode" or not named:
        return by_episode(group)
    return by_state(group, config.discount)
