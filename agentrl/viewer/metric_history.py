"""A job's logged metrics by training step, episode, token or time."""

import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

from agentrl.runs.file_reading import is_number
from agentrl.runs.jsonl import JsonlTail
from agentrl.runs.metrics_file import EVALUATION, METRICS_FILE, TRAINING_STAGES

Point = tuple[float, float]
Axis = Literal["step", "episodes", "tokens", "time"]
AXES: tuple[Axis, ...] = get_args(Axis)
"""Horizontal axes of curves: training steps, or cumulative episodes, tokens or time."""
_COUNTED_STAGES = (*TRAINING_STAGES, EVALUATION)
"""Stages that count steps in training steps."""
_RATES = {"episodes": "rollout/episodes_per_s", "tokens": "rollout/tokens_per_s"}
_PLAYED_S = "seconds/rollout"
_NEEDED: Mapping[Axis, set[str]] = {
    "step": set(),
    "episodes": {_RATES["episodes"], _PLAYED_S},
    "tokens": {_RATES["tokens"], _PLAYED_S},
    "time": {"time"},
}
"""Metrics needed to compute each axis."""
_MAX_LINES = 200_000
_MAX_POINTS = 2_000
"""Maximum number of points per curve; longer curves are thinned to between half and all of it."""
_RECENT = 20
"""Number of latest training steps from which to extrapolate the remaining time."""


class _Column:
    """A metric's values, and the lines that contain them."""

    __slots__ = ("lines", "values")

    def __init__(self) -> None:
        self.lines, self.values = array("I"), array("d")


class MetricHistory:
    """Metrics in `metrics.jsonl`, read incrementally as the file grows."""

    def __init__(self, run: Path) -> None:
        self._tail = JsonlTail(run / METRICS_FILE)
        self._lock = threading.RLock()
        self._clear()

    def _clear(self) -> None:
        self._stages, self._steps = list[str](), array("d")
        self._columns = dict[str, _Column]()

    def read(self) -> None:
        """Read the lines added since the last call."""
        with self._lock:
            if self._tail.is_replaced():
                self._tail = JsonlTail(self._tail.path)
                self._clear()
            if not self._tail.path.is_file() or len(self._stages) >= _MAX_LINES:
                return
            for line in self._tail.new():
                self._add(line)

    def _add(self, line: dict[str, Any]) -> None:
        stage, step = line.get("stage"), line.get("step")
        if stage not in _COUNTED_STAGES or not is_number(step):
            return
        number = len(self._stages)
        self._stages.append(stage)
        self._steps.append(step)
        columns = self._columns
        for name, value in line.items():
            # Check floats first: nearly all values are floats, and long runs have millions.
            if isfinite(value) if type(value) is float else is_number(value):
                if name not in columns:
                    columns[name] = _Column()
                column = columns[name]
                column.lines.append(number)
                column.values.append(value)

    def share(self) -> float:
        """Return the fraction of the file read so far, even while being read."""
        try:
            return self._tail.read / max(1, self._tail.path.stat().st_size)
        except OSError:
            return 1.0

    def names(self) -> list[str]:
        """Return the metrics of training steps and evaluations so far, in no particular order."""
        with self._lock:
            self.read()
            return [name for name in self._columns if name not in ("step", "time")]

    def has_stage(self, stages: Sequence[str]) -> bool:
        """Return whether a line of any of these stages was logged."""
        with self._lock:
            self.read()
            return any(stage in stages for stage in self._stages)

    def axes(self) -> list[Axis]:
        """Return the axes for which the needed metrics were logged."""
        with self._lock:
            self.read()
            return [axis for axis in AXES if self._columns.keys() >= _NEEDED[axis]]

    def points(
        self,
        names: str | Sequence[str],
        axis: Axis = "step",
        *,
        stages: Sequence[str] = _COUNTED_STAGES,
        where: Callable[[int], bool] = lambda line: True,
    ) -> list[Point]:
        """Return a curve; if a step was logged twice, its last line counts.

        Args:
            names: a metric, or several, of which the first that was logged is drawn.
            axis: the horizontal axis.
            stages: the stages whose lines to include.
            where: which lines of these stages to include.
        """
        with self._lock:
            self.read()
            for name in [names] if isinstance(names, str) else names:
                values = {
                    self._steps[line]: value
                    for line, value in self._values(name)
                    if self._stages[line] in stages and where(line)
                }
                if values:
                    points = sorted(values.items())
                    return self._along(axis, points[:: max(1, -(-len(points) // _MAX_POINTS))])
            return []

    def _values(self, name: str) -> Iterable[tuple[int, float]]:
        """Return the lines that have a metric, with the metric's values."""
        column = self._columns.get(name)
        return () if column is None else zip(column.lines, column.values, strict=True)

    def lines_with(self, name: str) -> set[int]:
        """Return the lines that have a metric."""
        with self._lock:
            self.read()
            return {line for line, _ in self._values(name)}

    def _along(self, axis: Axis, points: list[Point]) -> list[Point]:
        """Convert points from steps to another axis, by its value at the end of each step."""
        if axis == "step":
            return points
        steps, reached = self._over(axis)
        if not steps:
            return []
        places = ((bisect_right(steps, step) - 1, value) for step, value in points)
        # Of two evaluations before the first step, which share a position, the last counts.
        found = {reached[at] if at >= 0 else 0.0: value for at, value in places}
        return sorted(found.items())

    def _over(self, axis: Axis) -> tuple[list[float], list[float]]:
        """Return the training steps in order, and the position on the axis at the end of each."""
        if axis == "time":
            times = self._training("time")
            began = min((time for _, time in self._values("time")), default=0.0)
            return [*times], [time - began for time in times.values()]
        rates, played = self._training(_RATES[axis]), self._training(_PLAYED_S)
        counts = {
            step: round(rate * played[step]) for step, rate in rates.items() if step in played
        }
        return [*counts], [*map(float, accumulate(counts.values()))]

    def _training(self, name: str) -> dict[float, float]:
        """Return a metric's values in training, by step, in order."""
        values = {
            self._steps[line]: value
            for line, value in self._values(name)
            if self._stages[line] in TRAINING_STAGES
        }
        return dict(sorted(values.items()))

    def remaining_s(self, steps: int) -> float | None:
        """Estimate the time of this many more training steps from the latest steps' median."""
        with self._lock:
            self.read()
            lines = self._values("time")
            times = [time for line, time in lines if self._stages[line] in TRAINING_STAGES]
        took = [after - before for before, after in pairwise(times[-_RECENT:])]
        return steps * median(took) if took else None
