"""The numbers that a job has logged, as curves."""

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl.replay.jsonl_tail import Tail

_WAYS = ("sampled", "greedy")
_MOST_LINES = 200_000
_MOST_POINTS = 2_000
"""Of one curve; longer ones are thinned out, to at least half as many."""

Point = tuple[float, float]


@dataclass(slots=True, kw_only=True, frozen=True)
class Curve:
    """One line of a chart."""

    name: str
    points: Sequence[Point]
    """(step, value), finite"""
    dots: bool = False
    """Whether it has few points, far apart."""
    dashed: bool = False
    """Whether the line between two points stands for nothing that was measured."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Chart:
    """Some curves over the same steps."""

    title: str
    curves: Sequence[Curve]
    about: str = ""
    """What it shows, where its title may be taken for something else."""


@dataclass(slots=True, kw_only=True, frozen=True)
class _Wanted:
    """Which metrics a chart shows: of each list the first that was logged."""

    title: str
    training: Sequence[str]
    held_out: Sequence[str] = field(default=())
    about: str = ""


_CHARTS = (
    _Wanted(title="Reward", training=("train/reward",), held_out=("reward",)),
    _Wanted(
        title="Success",
        training=("train/success", "train/won"),
        held_out=("success", "won"),
        about="The share of episodes that were won.",
    ),
    _Wanted(
        title="Accuracy",
        training=("train/accuracy",),
        held_out=("accuracy",),
        about="The share of what was done right, within an episode too. One is won where all was.",
    ),
    _Wanted(title="Turns of an episode", training=("train/turns",)),
    _Wanted(title="Entropy, nats a token", training=("learner/entropy",)),
    _Wanted(title="Mismatch of engine and learner, nats", training=("learner/mismatch_k1",)),
    _Wanted(title="Void episodes", training=("rollout/void",)),
    _Wanted(title="Unreadable replies", training=("train/unreadable",)),
    _Wanted(title="Turns a second", training=("rollout/turns_per_s",)),
)


class Curves:
    """What `metrics.jsonl` holds, read as it grows.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: Path) -> None:
        self._tail = Tail(run / "metrics.jsonl")
        self._lines: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def charts(self) -> list[Chart]:
        """Those of which something was logged."""
        with self._lock:
            if self._tail.is_replaced():
                self._tail, self._lines = Tail(self._tail.path), []
            if self._tail.path.is_file() and len(self._lines) < _MOST_LINES:
                self._lines.extend(self._tail.new())
            lines = list(self._lines)
        drawn = (
            Chart(title=wanted.title, curves=_curves(wanted, lines), about=wanted.about)
            for wanted in _CHARTS
        )
        return [chart for chart in drawn if chart.curves]


def _curves(wanted: _Wanted, lines: Sequence[dict[str, Any]]) -> list[Curve]:
    """Evaluations during training play fewer games than those before and after it.

    So these are curves of their own: at the last step there is one of each.
    """
    trained = [line for line in lines if line.get("stage") == "reinforcement"]
    evaluated = [line for line in lines if line.get("stage") == "evaluation"]
    during = [line for line in evaluated if not _ways_told_whole(line)]
    found = [
        Curve(name="training", points=_points(trained, wanted.training)),
        Curve(
            name="held out, during training",
            points=_points(during, [f"sampled/{key}" for key in wanted.held_out]),
            dots=True,
        ),
        *(
            Curve(
                name=f"held out, before and after, {way}",
                points=_points(
                    [line for line in evaluated if way in _ways_told_whole(line)],
                    [f"{way}/{key}" for key in wanted.held_out],
                ),
                dots=True,
                dashed=True,
            )
            for way in _WAYS
        ),
    ]
    return [curve for curve in found if curve.points]


def _ways_told_whole(line: dict[str, Any]) -> list[str]:
    """Those of which it says how many episodes there were, as a job does before and after only."""
    return [way for way in _WAYS if f"{way}/episodes" in line]


def _points(here: Sequence[dict[str, Any]], keys: Sequence[str]) -> list[Point]:
    """In the order of steps; of one that was logged again, the last counts."""
    key = next((key for key in keys if any(_is_number(line.get(key)) for line in here)), None)
    if key is None:
        return []
    values = {
        float(line["step"]): float(line[key])
        for line in here
        if _is_number(line.get(key)) and _is_number(line.get("step"))
    }
    found = sorted(values.items())
    return found[:: max(1, -(-len(found) // _MOST_POINTS))]


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max  # not of one that is none, or infinite
    )
