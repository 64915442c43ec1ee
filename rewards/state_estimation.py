"""Rewards for state estimates (`env.state_estimation`), by the environment's true state.

Both are at most 0, so that a longer episode never earns more. A turn without a true state, such as
a screen that another app covers, is not judged. It gets the mean of the episode's other turns,
which leaves that mean unchanged; an episode without any judged turn gets no such reward.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from agentrl.actions.state_estimates import (
    OBSERVATION,
    PREDICTABLE,
    PREDICTION,
    VISIBLE,
    share_of_right_fields,
)
from agentrl.types import Episode


def observation(episode: Episode) -> list[float] | None:
    """Return minus the share of wrong fields in each reply's `<observation>`."""
    before = [episode.reset_info, *(turn.info for turn in episode.turns[:-1])]
    return _neutral_where_void([
        _deduction(turn.reply, OBSERVATION, info.get(VISIBLE))
        for turn, info in zip(episode.turns, before, strict=True)
    ])  # fmt: skip


def prediction(episode: Episode) -> list[float] | None:
    """Return minus the share of wrong fields in each reply's `<prediction>` of the next state.

    A turn without an executed action is not judged, because nothing came of its prediction.
    """
    after = [None if t.action is None else t.info.get(PREDICTABLE) for t in episode.turns]
    return _neutral_where_void([
        _deduction(turn.reply, PREDICTION, true)
        for turn, true in zip(episode.turns, after, strict=True)
    ])  # fmt: skip


def _deduction(reply: str, tag: str, true: Mapping[str, Any] | None) -> float | None:
    return share_of_right_fields(reply, tag, true) - 1.0 if true else None


def _neutral_where_void(values: Sequence[float | None]) -> list[float] | None:
    judged = [value for value in values if value is not None]
    if not judged:
        return None
    neutral = fmean(judged)
    return [neutral if value is None else value for value in values]
