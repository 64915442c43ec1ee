"""What is known of an episode without opening its file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl.types import Outcome, cause

_WON = ("success", "won", "accuracy")
"""Metrics that are 1 where everything was right."""

_LONGEST_S = 1e11
"""Some 3,000 years: what is beyond is no time, and has no date."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Summary:
    """One line of the index, joined with what was said of the episode later."""

    id: str
    split: str
    """`train`, `eval` or `demo`."""
    step: int
    time: float
    """Seconds since 1970 when it ended."""
    env_id: str
    group: str
    member: int
    seed: int
    outcome: Outcome
    error: str | None
    device: str | None
    turns: int
    tokens: int
    seconds: float
    env_reward: float
    total: float
    """The weighted sum of all rewards."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The environment's own, as of the last turn."""
    config: str | None = None
    """The hash of the configuration that it was played under."""
    rewards: tuple[float, ...] = ()
    """Per turn."""
    components: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Per reward function, per turn, unweighted."""
    advantages: tuple[float, ...] | None = None
    """Per turn; None where no training step used the episode."""
    used_by: int | None = None
    """The training step that used it, as far as that was told."""
    removed: bool = False
    """Whether retention removed its file: this line and its scores are all that is left."""

    @property
    def cause(self) -> str | None:
        """What voided the episode; None where it is not void."""
        return cause(self.outcome, self.error)

    @property
    def won(self) -> bool | None:
        """Whether everything was right; None where it is void or its environment does not tell."""
        told = (self.metrics[name] for name in _WON if name in self.metrics)
        share = None if self.outcome.void else next(told, None)
        return None if share is None else share >= 1

    @property
    def label(self) -> str:
        """Which play of its step it belongs to, such as `train`, `random` or `after-greedy`."""
        return self.group.rsplit("-", 2)[0]


def label_of(name: str) -> str:
    """How a play of this name, such as `after sampled`, is called in the ids of its episodes."""
    return re.sub(r"[^A-Za-z0-9-]", "-", name)


def summary_of(
    entry: Mapping[str, Any], score: Mapping[str, Any], *, removed: bool = False
) -> Summary:
    """One line of the index and what scores say of it.

    Args:
        entry: the line.
        score: all lines of scores, joined.
        removed: whether the episode's file was removed.

    Raises:
        AttributeError, KeyError, OverflowError, TypeError, ValueError: these are none.
    """
    components = score.get("components", {})
    turns = _count(entry["turns"])
    advantages, used_by = score.get("advantages"), score.get("used_by")
    if advantages is not None and len(advantages) != turns:  # those of an earlier recording
        advantages = used_by = None
    return Summary(
        id=str(entry["id"]),
        split=str(entry["split"]),
        step=int(entry["step"]),
        time=_seconds(entry["time"]),
        env_id=str(entry["env_id"]),
        group=str(entry["group"]),
        member=int(entry["member"]),
        seed=int(entry["seed"]),
        outcome=Outcome(entry["outcome"]),
        error=_text(entry["error"]),
        device=_text(entry["device"]),
        turns=turns,
        tokens=_count(entry["tokens"]),
        seconds=_seconds(entry["seconds"]),
        env_reward=float(entry["env_reward"]),
        total=float(score.get("total", entry["total"])),
        metrics={str(name): float(value) for name, value in entry.get("metrics", {}).items()},
        config=_text(entry.get("config")),
        rewards=_floats(score.get("rewards", ())),
        components={str(name): _floats(values) for name, values in components.items()},
        advantages=None if advantages is None else _floats(advantages),
        used_by=None if used_by is None else int(used_by),
        removed=removed,
    )


def at(values: Sequence[float] | None, turn: int) -> float | None:
    """What was said of one turn, from 0; None where nothing was."""
    return values[turn] if values is not None and turn < len(values) else None


def _seconds(value: Any) -> float:
    if not 0 <= (seconds := float(value)) < _LONGEST_S:
        raise ValueError(f"{value!r} are no seconds")
    return seconds


def _count(value: Any) -> int:
    count = int(value)
    float(count)  # whoever divides by it needs it
    return count


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(map(float, values))
