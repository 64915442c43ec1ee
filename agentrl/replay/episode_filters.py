"""Select recorded episodes by split, label, outcome, step, seed, reward and more."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from agentrl.errors import ConfigError
from agentrl.replay.episode_summary import Summary, label_of
from agentrl.text import did_you_mean
from agentrl.types import Outcome

HELD_OUT = "eval"
SPLITS = ("train", HELD_OUT, "demo")
VOID = "void"
"""Matches every outcome that voids an episode."""
OUTCOMES = (*(outcome.value for outcome in Outcome), VOID)


@dataclass(slots=True, kw_only=True, frozen=True)
class Filter:
    """Conditions on an episode; None accepts everything.

    Raises:
        ConfigError: the split or the outcome does not exist.
    """

    split: str | None = None
    held_out: bool | None = None
    """Whether it was played for an evaluation, on seeds that training must not see."""
    label: str | None = None
    """Such as `train`, `random` or `after-greedy` (also spelled `after greedy`)."""
    outcome: str | None = None
    """One of `Outcome`, or `void` for all void outcomes."""
    cause: str | None = None
    """What made it void."""
    step: int | None = None
    seed: int | None = None
    group: str | None = None
    device: str | None = None
    id: str | None = None
    won: bool | None = None
    """By the environment's own metric; without such a metric an episode matches neither value."""
    least: float | None = None
    """Smallest total reward."""
    most: float | None = None
    """Largest total reward."""
    among: Collection[str] | None = None
    """Episode ids, such as the results of a search."""

    def __post_init__(self) -> None:
        _check("split", self.split, SPLITS)
        _check("outcome", self.outcome, OUTCOMES)

    def admits(self, summary: Summary) -> bool:
        """Whether an episode meets all conditions."""
        if self.label is not None and summary.label not in (self.label, label_of(self.label)):
            return False
        plain = ("split", "cause", "step", "seed", "group", "device", "id")
        for name in plain:
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
        if self.won is not None and summary.won is not self.won:
            return False
        if self.least is not None and summary.total < self.least:
            return False
        if self.most is not None and summary.total > self.most:
            return False
        return self.among is None or summary.id in self.among

    def of(self, episodes: Iterable[Summary]) -> list[Summary]:
        """The episodes that meet all conditions, in the given order."""
        if self == Filter():
            return list(episodes)
        return [summary for summary in episodes if self.admits(summary)]


def void_causes(episodes: Collection[Summary]) -> Counter[str]:
    """Number of void episodes by cause."""
    return Counter(s.cause for s in episodes if s.cause is not None)


def unknown_label(label: str | None, episodes: Iterable[Summary]) -> str | None:
    """An error message if no episode has this label; None if one does."""
    known = list(dict.fromkeys(summary.label for summary in episodes))
    if label is None or not known or {label, label_of(label)} & set(known):
        return None
    suggestion = did_you_mean(label_of(label), known)
    return f"label={label!r}: no episode has this label{suggestion}. Labels: {', '.join(known)}"


def check_label(label: str | None, episodes: Iterable[Summary]) -> None:
    """Refuse a label that no episode has.

    Raises:
        ConfigError: no episode has this label.
    """
    if (unknown := unknown_label(label, episodes)) is not None:
        raise ConfigError(unknown)


def _check(name: str, value: str | None, known: Collection[str]) -> None:
    if value is not None and value not in known:
        raise ConfigError(
            f"{name}={value!r}: must be one of {', '.join(known)}{did_you_mean(value, known)}"
        )
