"""The episodes of a training step as tensors, independent of the layout of prompts.

Shapes: E episodes; T turns and N sampled tokens of the longest episode.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from agentrl.algorithms.core.statistics import last_of_turns
from agentrl.types import Outcome, ScoredEpisode


@dataclass(slots=True, kw_only=True, frozen=True)
class EpisodeScores:
    """Scores of an episode's n sampled tokens, as far as the algorithm requires them."""

    values: tuple[float, ...] = ()
    """[n], the critic's values of the state before each token; empty without a critic."""
    last_value: float = 0.0
    """The critic's value of the state after the last token."""
    kl: tuple[float, ...] = ()
    """[n], KL estimate between policy and reference; empty unless the reward includes the KL."""
    implicit: tuple[float, ...] = ()
    """[n], the implicit process reward (PRIME); empty without an implicit reward."""
    teacher: tuple[float, ...] = ()
    """[n], log-ratio of the teacher to the policy before the update; empty without a teacher."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Trajectories:
    """E episodes, padded with 0, or with False in masks."""

    group: Tensor
    """int64[E], equal for group members."""
    valid: Tensor
    """bool[E], False for void episodes, which were ended by an infrastructure fault."""
    turn_mask: Tensor
    """bool[E, T], True for the turns of an episode."""
    turn_rewards: Tensor
    """float64[E, T]"""
    states: Tensor
    """int64[E, T], equal for equal states within a group; -1 without a state key."""
    token_mask: Tensor
    """bool[E, N], True for the sampled tokens of valid episodes."""
    turn_index: Tensor
    """int64[E, N], the turn of each token."""
    rewards: Tensor
    """float64[E, N]; a turn's reward is on its last token."""
    values: Tensor
    """float64[E, N]; 0 without a critic."""
    last_values: Tensor
    """float64[E], value of the state after the last token; 0 unless the episode was truncated."""
    implicit: Tensor
    """float64[E, N]; 0 without an implicit reward."""
    teacher: Tensor
    """float64[E, N], log pi_teacher - log pi of each token, before the update; 0 without a
    teacher."""
    greedy: Tensor
    """float64[E], the return of the greedy policy on the same seed; 0 if not played."""
    function_rewards: Tensor
    """float64[E, K], the unweighted reward of each of K reward functions, summed over the turns."""
    function_weights: Tensor
    """float64[E, K], the weight of each function; 0 if it does not apply to the episode."""

    @property
    def returns(self) -> Tensor:
        """float64[E], the sum of an episode's rewards."""
        return self.turn_rewards.sum(-1)

    def discounts(self, turn: float, token: float) -> Tensor:
        """Return float64[E, N]: `turn` after a turn's last token, `token` after other tokens."""
        last = last_of_turns(self.token_mask, self.turn_index)
        both = torch.tensor([token, turn], dtype=torch.float64)
        return both[last.long()]

    def to_tokens(self, values: Tensor) -> Tensor:
        """Expand one number per episode, [E], or per turn, [E, T], to [E, N]."""
        if values.dim() == 1:
            return values[:, None] * self.token_mask
        if not values.shape[1]:
            return torch.zeros_like(self.rewards)
        return values.gather(1, self.turn_index) * self.token_mask


def build_trajectories(
    groups: Sequence[Sequence[ScoredEpisode]],
    scores: Sequence[EpisodeScores] | None = None,
    greedy: Sequence[float] | None = None,
    kl_coefficient: float = 0.0,
) -> Trajectories:
    """Stack the episodes of a step, group after group.

    Args:
        groups: scored episodes, by group.
        scores: [E], scores of each episode.
        greedy: the greedy policy's return for each group.
        kl_coefficient: weight of the KL estimate that is subtracted from each token's reward.

    Returns:
        Trajectories of all E episodes. The reward of a turn without sampled tokens is added to the
        last sampled token before it.
    """
    episodes = [scored for group in groups for scored in group]
    scores = scores or [EpisodeScores()] * len(episodes)
    sizes = [[len(turn.reply_ids) for turn in e.episode.turns] for e in episodes]
    turn = [_repeated(range(len(own)), own, torch.int64) for own in sizes]
    rewards = [
        _token_rewards(e, own, s, kl_coefficient)
        for e, own, s in zip(episodes, sizes, scores, strict=True)
    ]
    # Sum over tokens, whose rewards include the KL.
    turn_rewards = [
        torch.zeros(len(own), dtype=torch.float64).index_add(0, at, r)
        for own, at, r in zip(sizes, turn, rewards, strict=True)
    ]
    function_rewards, function_weights = _by_function(episodes)
    is_truncated = [e.episode.outcome is Outcome.TRUNCATED for e in episodes]
    valid = torch.tensor([not e.episode.outcome.void for e in episodes])
    tokens = _pad([torch.ones(len(own), dtype=torch.bool) for own in turn])
    group_sizes = [len(group) for group in groups]
    return Trajectories(
        group=_repeated(range(len(groups)), group_sizes, torch.int64),
        valid=valid,
        turn_mask=_pad([torch.ones(len(own), dtype=torch.bool) for own in sizes]),
        turn_rewards=_pad(turn_rewards),
        states=_state_ids(groups),
        token_mask=tokens & valid[:, None],
        turn_index=_pad(turn),
        rewards=_pad(rewards),
        values=_pad([_float64(s.values) for s in scores], tokens.shape[1]),
        last_values=_float64(
            [s.last_value if own else 0.0 for s, own in zip(scores, is_truncated, strict=True)]
        ),
        implicit=_pad([_float64(s.implicit) for s in scores], tokens.shape[1]),
        teacher=_pad([_float64(s.teacher) for s in scores], tokens.shape[1]),
        greedy=_repeated(greedy or [0.0] * len(groups), group_sizes, torch.float64),
        function_rewards=function_rewards,
        function_weights=function_weights,
    )


def _token_rewards(
    scored: ScoredEpisode, sizes: Sequence[int], scores: EpisodeScores, kl_coefficient: float
) -> Tensor:
    result = -kl_coefficient * _float64(scores.kl)
    if not scores.kl:
        result = torch.zeros(sum(sizes), dtype=torch.float64)
    end = 0
    for size, reward in zip(sizes, scored.rewards, strict=True):
        end += size
        # Add the reward of a turn without tokens to the last token before it.
        if end:
            result[end - 1] += reward
    return result


def _by_function(episodes: Sequence[ScoredEpisode]) -> tuple[Tensor, Tensor]:
    """Return float64[E, K] the unweighted rewards and float64[E, K] the weights of functions."""
    own = [{} if e.episode.outcome.void else e.by_function() for e in episodes]
    # The same function may have another weight in another environment of a mixture.
    names = list(dict.fromkeys(name for functions in own for name in functions))
    rows = [[functions.get(name, (0.0, 0.0)) for name in names] for functions in own]
    weights, rewards = _float64(rows).view(len(episodes), len(names), 2).unbind(-1)
    return rewards, weights


def _state_ids(groups: Sequence[Sequence[ScoredEpisode]]) -> Tensor:
    rows = []
    for group in groups:
        # Compare keys only within a group, because other groups play other seeds.
        names: dict[str, int] = {}
        for scored in group:
            keys = [turn.state_key for turn in scored.episode.turns]
            rows.append(
                torch.tensor(
                    [-1 if key is None else names.setdefault(key, len(names)) for key in keys],
                    dtype=torch.int64,
                )
            )
    return _pad(rows)


def _repeated(values: Sequence[float], counts: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Repeat each value by its count."""
    # Avoid torch.repeat_interleave, which starts all threads even for a few numbers.
    pairs = zip(values, counts, strict=True)
    return torch.tensor([value for value, count in pairs for _ in range(count)], dtype=dtype)


def _float64(values: Sequence[Any]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _pad(rows: Sequence[Tensor], width: int = 0) -> Tensor:
    """Stack rows to [E, at least `width`], padded with 0."""
    stacked = pad_sequence(list(rows), batch_first=True)
    missing = width - stacked.shape[1]
    return torch.nn.functional.pad(stacked, (0, missing)) if missing > 0 else stacked


def split_by_turn(
    values: Tensor, groups: Sequence[Sequence[ScoredEpisode]]
) -> list[list[list[float]]]:
    """Split per-token numbers by episode and turn.

    Args:
        values: [E, N]
        groups: as in `build_trajectories`.

    Returns:
        [E][T][R]
    """
    result = []
    episodes = [scored.episode for group in groups for scored in group]
    for row, episode in zip(values.tolist(), episodes, strict=True):
        turns, start = [], 0
        for turn in episode.turns:
            turns.append(row[start : start + len(turn.reply_ids)])
            start += len(turn.reply_ids)
        result.append(turns)
    return result
