"""The episodes of a training step as tensors, whatever the layout of their prompts.

Shapes: E episodes; T turns of the longest; N sampled tokens of the longest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from agentrl.algorithms.estimators import last_of_turns
from agentrl.types import Outcome, ScoredEpisode


@dataclass(slots=True, kw_only=True, frozen=True)
class Judgement:
    """What models other than the policy say of an episode's sampled tokens."""

    values: tuple[float, ...] = ()
    """[n], of the state before each token, by the critic; empty without one."""
    last_value: float = 0.0
    """Of the state after the last token, by the critic."""
    divergence: tuple[float, ...] = ()
    """[n], of the policy from the reference; empty where the reward does not hold it."""
    implicit: tuple[float, ...] = ()
    """[n], the implicit process reward (PRIME); empty without one."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Trajectories:
    """E episodes; what is beyond an episode's end is 0, and False in the masks."""

    group: Tensor
    """int64[E], equal for siblings."""
    valid: Tensor
    """bool[E], False for episodes that the world failed."""
    turns: Tensor
    """bool[E, T]"""
    turn_rewards: Tensor
    """float64[E, T]"""
    states: Tensor
    """int64[E, T], equal for the same state of the same group; -1 where it has no name."""
    tokens: Tensor
    """bool[E, N], True for the sampled tokens of valid episodes."""
    turn: Tensor
    """int64[E, N], the turn of each token."""
    rewards: Tensor
    """float64[E, N]: a turn's reward lies on its last token."""
    values: Tensor
    """float64[E, N]; 0 without a critic."""
    last_values: Tensor
    """float64[E]: 0 where the episode terminated."""
    implicit: Tensor
    """float64[E, N]; 0 without an implicit reward."""
    greedy: Tensor
    """float64[E], the return of the greedy policy on the same seed; 0 where it was not played."""

    @property
    def returns(self) -> Tensor:
        """float64[E], the sum of an episode's rewards."""
        return self.turn_rewards.sum(-1)

    def discounts(self, turn: float, token: float) -> Tensor:
        """float64[E, N]: what lies behind a token counts `token`, behind a turn's end `turn`."""
        last = last_of_turns(self.tokens, self.turn)
        both = torch.tensor([token, turn], dtype=torch.float64)
        return both[last.long()]

    def to_tokens(self, values: Tensor) -> Tensor:
        """[E, N] of one number for each episode, [E], or for each turn, [E, T]."""
        if values.dim() == 1:
            return values[:, None] * self.tokens
        if not values.shape[1]:
            return torch.zeros_like(self.rewards)
        return values.gather(1, self.turn) * self.tokens


def trajectories(
    groups: Sequence[Sequence[ScoredEpisode]],
    judgements: Sequence[Judgement] | None = None,
    greedy: Sequence[float] | None = None,
    kl_coefficient: float = 0.0,
) -> Trajectories:
    """Put the episodes of a step side by side, group after group.

    Args:
        groups: siblings, scored.
        judgements: [E], of each episode.
        greedy: one return for each group.
        kl_coefficient: what the divergence in the judgements takes from the reward of its token.

    Returns:
        E is the number of all episodes. A turn without tokens hands its reward to the token
        before it: nobody else can be credited.
    """
    episodes = [scored for group in groups for scored in group]
    judged = judgements or [Judgement()] * len(episodes)
    sizes = [[len(turn.reply_ids) for turn in e.episode.turns] for e in episodes]
    rewards = [
        _on_tokens(e, own, j, kl_coefficient)
        for e, own, j in zip(episodes, sizes, judged, strict=True)
    ]
    turn = [
        torch.repeat_interleave(torch.arange(len(own)), torch.tensor(own, dtype=torch.int64))
        for own in sizes
    ]
    valid = torch.tensor([not e.episode.outcome.void for e in episodes])
    tokens = _padded([torch.ones(len(own), dtype=torch.bool) for own in turn])
    turn_rewards = [
        torch.zeros(len(own), dtype=torch.float64).index_add(0, at, r)
        for own, at, r in zip(sizes, turn, rewards, strict=True)
    ]
    width = tokens.shape[1]
    return Trajectories(
        group=torch.repeat_interleave(
            torch.arange(len(groups)), torch.tensor([len(group) for group in groups])
        ),
        valid=valid,
        turns=_padded([torch.ones(len(own), dtype=torch.bool) for own in sizes]),
        turn_rewards=_padded(turn_rewards),
        states=_states(groups),
        tokens=tokens & valid[:, None],
        turn=_padded(turn),
        rewards=_padded(rewards),
        values=_padded([_numbers(j.values) for j in judged], width),
        last_values=torch.tensor(
            [
                j.last_value if e.episode.outcome is Outcome.TRUNCATED else 0.0
                for e, j in zip(episodes, judged, strict=True)
            ],
            dtype=torch.float64,
        ),
        implicit=_padded([_numbers(j.implicit) for j in judged], width),
        greedy=_numbers(
            [
                returned
                for group, returned in zip(groups, greedy or [0.0] * len(groups), strict=True)
                for _ in group
            ]
        ),
    )


def _on_tokens(
    scored: ScoredEpisode, sizes: Sequence[int], judged: Judgement, kl_coefficient: float
) -> Tensor:
    result = -kl_coefficient * _numbers(judged.divergence)
    if not judged.divergence:
        result = torch.zeros(sum(sizes), dtype=torch.float64)
    end = 0
    for size, reward in zip(sizes, scored.rewards, strict=True):
        end += size
        if end:
            result[end - 1] += reward
    return result


def _states(groups: Sequence[Sequence[ScoredEpisode]]) -> Tensor:
    rows = []
    for group in groups:
        names: dict[str, int] = {}
        for scored in group:
            keys = [turn.state_key for turn in scored.episode.turns]
            rows.append(
                torch.tensor(
                    [-1 if key is None else names.setdefault(key, len(names)) for key in keys],
                    dtype=torch.int64,
                )
            )
    return _padded(rows)


def _numbers(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _padded(rows: Sequence[Tensor], width: int = 0) -> Tensor:
    """[E, at least `width`], filled up with 0."""
    found = pad_sequence(list(rows), batch_first=True)
    missing = width - found.shape[1]
    return torch.nn.functional.pad(found, (0, missing)) if missing > 0 else found


def split(values: Tensor, groups: Sequence[Sequence[ScoredEpisode]]) -> list[list[list[float]]]:
    """A number for each sampled token, by episode and turn.

    Args:
        values: [E, N]
        groups: as for `trajectories`.

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
