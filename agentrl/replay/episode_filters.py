"""Which of the recorded episodes are wanted."""

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
"""Stands for every outcome where the world failed."""
OUTCOMES = (*(outcome.value for outcome in Outcome), VOID)


@dataclass(slots=True, kw_only=True, frozen=True)
class Filter:
    """What an episode must be; None does not care.

    Raises:
        ConfigError: a split or an outcome that does not exist.
    """

    split: str | None = None
    held_out: bool | None = None
    """Played on a seed that is evaluated, which training must not see."""
    label: str | None = None
    """Such as `train`, `random` or `after-greedy`, which `after greedy` is, too."""
    outcome: str | None = None
    """One of `Outcome`, or `void` for every failure."""
    cause: str | None = None
    """What voided it."""
    step: int | None = None
    seed: int | None = None
    group: str | None = None
    device: str | None = None
    id: str | None = None
    won: bool | None = None
    """As its environment counts; one that does not tell is neither."""
    least: float | None = None
    most: float | None = None
    """Of its reward."""
    among: Collection[str] | None = None
    """Ids, such as those that a search has found."""

    def __post_init__(self) -> None:
        _check("split", self.split, SPLITS)
        _check("outcome", self.outcome, OUTCOMES)

    def admits(self, summary: Summary) -> bool:
        """Whether an episode is wanted."""
        if self.label is not None and summary.label not in (self.label, label_of(self.label)):
            return False
        plain = ("split", "cause", "step", "seed", "group", "device", "id")
        for name in plain:
            wanted = getattr(self, name)
            if wanted is not None and getattr(summary, name) != wanted:
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
        """Those that are wanted, in their order."""
        if self == Filter():
            return list(episodes)
        return [summary for summary in episodes if self.admits(summary)]


def void_causes(episodes: Collection[Summary]) -> Counter[str]:
    """How many were void, by what voided them."""
    return Counter(s.cause for s in episodes if s.cause is not None)


def unknown_label(label: str | None, episodes: Iterable[Summary]) -> str | None:
    """Which plays there are, where none is called like this; None where one is."""
    known = list(dict.fromkeys(summary.label for summary in episodes))
    if label is None or not known or {label, label_of(label)} & set(known):
        return None
    meant = did_you_mean(label_of(label), known)
    return f"label={label!r}: no play is called so{meant}. There are: {', '.join(known)}"


def check_label(label: str | None, episodes: Iterable[Summary]) -> None:
    """Refuse the name of a play that there is not.

    Raises:
        ConfigError: there is none of that name.
    """
    if (unknown := unknown_label(label, episodes)) is not None:
        raise ConfigError(unknown)


def _check(name: str, value: str | None, known: Collection[str]) -> None:
    if value is not None and value not in known:
        raise ConfigError(
            f"{name}={value!r}: must be one of {', '.join(known)}{did_you_mean(value, known)}"
        )
