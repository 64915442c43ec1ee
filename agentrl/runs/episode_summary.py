"""Summaries of episodes, available without opening the episode files, and filters over them."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, get_args

from agentrl.errors import AppLeft, ConfigError
from agentrl.text.name_suggestions import did_you_mean, known_names
from agentrl.types import Outcome, Split, TruncatedBy

_SUCCESS = ("success", "won", "accuracy")
"""Metrics that are 1 if the episode was a success; the first metric present counts."""
HELD_OUT = "eval"
SPLITS = get_args(Split)
VOID = "void"
"""Outcome filter that matches every void outcome."""
OUTCOMES = (*(outcome.value for outcome in Outcome), VOID)
_LONGEST_S = 1e11
"""Upper bound of a valid time in seconds, about 3,000 years; larger values have no date."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Summary:
    """An episode's line in the index, joined with its scores, which are appended later."""

    id: str
    """The episode's id."""
    split: str
    """`train`, `eval` or `demo`."""
    step: int
    """The training step in which the episode was played."""
    time: float
    """Time at which the episode ended, in seconds since 1970."""
    env_id: str
    """The environment's name in `env.id`."""
    group: str
    """The group of siblings that the episode is compared with."""
    member: int
    """Position in the group, from 0."""
    seed: int
    """The reset's seed."""
    outcome: Outcome
    """How the episode ended."""
    error: str | None
    """Why the episode is void; None if it is valid."""
    truncated_by: TruncatedBy | None
    """The limit that the episode reached; None if it was not truncated."""
    device: str | None
    """The phone's name; None without a phone."""
    turns: int
    """Number of turns."""
    tokens: int
    """Number of sampled tokens."""
    seconds: float
    """Duration of the turns, in seconds."""
    env_reward: float
    """Sum of the environment's own rewards."""
    reward: float
    """Weighted sum of all rewards."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The environment's metrics after the last turn."""
    failure_modes: Mapping[str, float] = field(default_factory=dict)
    """What went wrong, as in `agentrl.runs.failure_modes`; empty if the episode is void, or was
    recorded by an earlier version."""
    config: str | None = None
    """Digest of the configuration that the episode was played with."""
    rewards: tuple[float, ...] = ()
    """Reward of each turn."""
    components: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Unweighted per-turn rewards of each function."""
    advantages: tuple[float, ...] | None = None
    """Advantage of each turn; None if no training step used the episode."""
    used_by: int | None = None
    """The training step that used the episode, if known."""
    removed: bool = False
    """Whether pruning removed the episode's file, leaving only this line and the scores."""
    starred: bool = False
    """Whether a person starred the episode."""
    note: str = ""
    """A person's note about the episode."""

    def __repr__(self) -> str:
        return (
            f"Summary({self.id}, {self.env_id}, seed {self.seed}, {self.outcome.value}, "
            f"{self.turns} turns, reward {self.reward:.4g})"
        )

    @property
    def cause(self) -> str | None:
        """Why the episode is void; None if it is valid.

        This is the type of the recorded error or, for an `AppLeft`, the start of its message, which
        names what covered the app.
        """
        if not self.outcome.void:
            return None
        if self.outcome is Outcome.TIMEOUT or not self.error:
            return self.outcome.value
        kind, _, message = self.error.partition(": ")
        return (message if kind == AppLeft.__name__ else kind).partition(":")[0]

    @property
    def success(self) -> bool | None:
        """Whether the episode succeeded; None if it is void or has no success metric."""
        return None if self.outcome.void else is_success(self.metrics)

    @property
    def label(self) -> str:
        """The episode's purpose, such as `train`, `random` or `after-greedy`."""
        return self.group.rsplit("-", 2)[0]


def is_success(metrics: Mapping[str, float]) -> bool | None:
    """Return whether an environment's metrics report success; None if no metric does."""
    value = next((metrics[name] for name in _SUCCESS if name in metrics), None)
    return None if value is None else value >= 1


def label_of(name: str) -> str:
    """Return a label, such as `after sampled`, as spelled in episode ids: `after-sampled`."""
    return re.sub(r"[^A-Za-z0-9-]", "-", name)


def summary_of(
    entry: Mapping[str, Any],
    score: Mapping[str, Any],
    notes: Mapping[str, Any] = MappingProxyType({}),
    *,
    removed: bool = False,
) -> Summary:
    """Join an index line with its scores.

    Raises:
        AttributeError, KeyError, OverflowError, TypeError, ValueError: a line is invalid.
    """
    components = score.get("components", {})
    turns = _count(entry["turns"])
    advantages, used_by = score.get("advantages"), score.get("used_by")
    # The advantages may belong to an earlier recording that a resumed job has replaced.
    if advantages is not None and len(advantages) != turns:
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
        truncated_by=TruncatedBy(limit) if (limit := entry["truncated_by"]) else None,
        error=_text(entry["error"]),
        device=_text(entry["device"]),
        turns=turns,
        tokens=_count(entry["tokens"]),
        seconds=_seconds(entry["seconds"]),
        env_reward=float(entry["env_reward"]),
        reward=float(score.get("reward", entry["reward"])),
        metrics=_named_floats(entry["metrics"]),
        failure_modes=_named_floats(entry.get("failure_modes", {})),
        config=_text(entry["config"]),
        rewards=_floats(score.get("rewards", ())),
        components={str(name): _floats(values) for name, values in components.items()},
        advantages=None if advantages is None else _floats(advantages),
        used_by=None if used_by is None else int(used_by),
        removed=removed,
        starred=notes.get("starred") is True,
        note=str(notes.get("note", "")),
    )


def _seconds(value: Any) -> float:
    if not 0 <= (seconds := float(value)) < _LONGEST_S:
        raise ValueError(f"{value!r} is not a valid number of seconds")
    return seconds


def _count(value: Any) -> int:
    count = int(value)
    # Raise OverflowError if the integer is too large for a float.
    float(count)
    return count


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(map(float, values))


def _named_floats(values: Any) -> dict[str, float]:
    return {str(name): float(value) for name, value in values.items()}


def at(values: Sequence[float] | None, turn: int) -> float | None:
    """Return the value of a turn, counted from 0, or None if it has none."""
    return values[turn] if values is not None and turn < len(values) else None


@dataclass(slots=True, kw_only=True, frozen=True)
class Filter:
    """Conditions on an episode; None accepts everything.

    Raises:
        ConfigError: the split or the outcome does not exist.
    """

    split: str | None = None
    """`train`, `eval` or `demo`."""
    held_out: bool | None = None
    """Whether the episode was played for an evaluation, on seeds that training must not see."""
    label: str | None = None
    """Purpose such as `train`, `random` or `after-greedy` (also spelled `after greedy`)."""
    outcome: str | None = None
    """One of `Outcome`, or `void` for all void outcomes."""
    cause: str | None = None
    """Why the episode is void; see `Summary.cause`."""
    step: int | None = None
    """The training step in which the episode was played."""
    seed: int | None = None
    """The reset's seed."""
    group: str | None = None
    """The episode's group."""
    device: str | None = None
    """The phone's name."""
    id: str | None = None
    """The episode's id."""
    success: bool | None = None
    """Success by the environment's metric; episodes without such a metric match neither value."""
    min_reward: float | None = None
    """Minimum reward."""
    max_reward: float | None = None
    """Maximum reward."""
    starred: bool | None = None
    """Whether the episode is starred."""
    among: Collection[str] | None = None
    """Episode ids, such as the results of a search."""
    query: Callable[[Summary], bool] | None = None
    """Query compiled by `episode_query.parse_query`."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("split", self.split, SPLITS), ("outcome", self.outcome, OUTCOMES)
        ):  # fmt: skip
            if value is not None and value not in known:
                raise ConfigError(
                    f"{name}={value!r}: must be one of {', '.join(known)}"
                    f"{did_you_mean(value, known)}"
                )

    def admits(self, summary: Summary) -> bool:
        """Return whether an episode meets all conditions."""
        if self.label is not None and summary.label not in (self.label, label_of(self.label)):
            return False
        for name in ("split", "cause", "step", "seed", "group", "device", "id", "starred"):
            expected = getattr(self, name)
            if expected is not None and getattr(summary, name) != expected:
                return False
        if self.held_out is not None and (summary.split == HELD_OUT) is not self.held_out:
            return False
        outcome = summary.outcome
        if self.outcome is not None and (
            not outcome.void if self.outcome == VOID else outcome.value != self.outcome
        ):
            return False
        if self.success is not None and summary.success is not self.success:
            return False
        if self.min_reward is not None and summary.reward < self.min_reward:
            return False
        if self.max_reward is not None and summary.reward > self.max_reward:
            return False
        if self.query is not None and not self.query(summary):
            return False
        return self.among is None or summary.id in self.among

    def of(self, episodes: Iterable[Summary]) -> list[Summary]:
        """Return the episodes that meet all conditions, in the given order."""
        if self == Filter():
            return list(episodes)
        return [summary for summary in episodes if self.admits(summary)]


def void_causes(episodes: Collection[Summary]) -> Counter[str]:
    """Return the number of void episodes by cause."""
    return Counter(s.cause for s in episodes if s.cause is not None)


def unknown_label(label: str | None, episodes: Iterable[Summary]) -> str | None:
    """Return an error message if no episode has this label, else None."""
    known = list(dict.fromkeys(summary.label for summary in episodes))
    if label is None or not known or {label, label_of(label)} & set(known):
        return None
    hint = known_names(label_of(label), known, label="Labels")
    return f"label={label!r}: no episode has this label{hint}"


def check_label(label: str | None, episodes: Iterable[Summary]) -> None:
    """Check that an episode with this label exists.

    Raises:
        ConfigError: no episode has this label.
    """
    if (unknown := unknown_label(label, episodes)) is not None:
        raise ConfigError(unknown)


def sibling_groups(summaries: Iterable[Summary]) -> list[list[Summary]]:
    """Return the valid episodes not yet removed, by group, without groups of one episode."""
    found = defaultdict[str, list[Summary]](list)
    for summary in summaries:
        if not summary.outcome.void and not summary.removed and summary.turns:
            found[summary.group].append(summary)
    return [members for members in found.values() if len(members) > 1]
