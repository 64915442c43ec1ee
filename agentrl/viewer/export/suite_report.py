"""Render results of evaluation suites as one HTML page: charts with intervals, and tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.confidence_intervals import with_interval
from agentrl.training.evaluation.suite_results import TaskResult
from agentrl.training.evaluation.suite_table import PART, number, suite_tables
from agentrl.viewer.export.html_pages import render

_WIDTH, _LEFT, _RIGHT = 640, 230, 60
_ROW = 22
_COLORS = 4
_NAME = 34
"""Maximum length of a name next to a bar, in characters."""


@dataclass(slots=True, kw_only=True, frozen=True)
class _Bar:
    """One model's mean and interval in one task, in SVG coordinates."""

    name: str
    y: int
    mean: float
    low: float
    high: float
    value: str
    about: str
    color: int


@dataclass(slots=True, kw_only=True, frozen=True)
class _BarChart:
    """Chart of all tasks of a suite with the same metric."""

    title: str
    height: int
    zero: float
    bars: Sequence[_Bar]
    models: Sequence[str]


def suite_report(results: Sequence[TaskResult]) -> bytes:
    """Render the results' page.

    Raises:
        ConfigError: two results of a task come from different settings.
    """
    tables = suite_tables(results)
    charts = {table.suite: _charts(results, table.suite) for table in tables}
    return render(
        "suite.html.jinja",
        title=", ".join(table.suite for table in tables),
        models=list(dict.fromkeys(one.model for one in results)),
        tables=tables,
        charts=charts,
        results=results,
        width=_WIDTH,
        left=_LEFT,
        texts=("task", "model", "metric"),
        part=PART,
    )


def _charts(results: Sequence[TaskResult], suite: str) -> list[_BarChart]:
    by_metric: dict[str, list[TaskResult]] = {}
    for one in results:
        if one.suite == suite:
            by_metric.setdefault(one.metric, []).append(one)
    return [_chart(metric, tasks) for metric, tasks in by_metric.items()]


def _chart(metric: str, results: Sequence[TaskResult]) -> _BarChart:
    ends = [end for one in results for end in _ends(one)]
    low, high = min(0.0, *ends), max(0.0, *ends)
    if all(0 <= end <= 1 for end in ends):
        high = 1.0
    span = (high - low) or 1.0

    def across(value: float) -> float:
        return round(_LEFT + (value - low) / span * (_WIDTH - _LEFT - _RIGHT), 1)

    models = list(dict.fromkeys(one.model for one in results))
    bars, y = [], 0
    for task in dict.fromkeys(one.task for one in results):
        name = task
        for one in (one for one in results if one.task == task):
            left, mean, right = _ends(one)
            bars.append(
                _Bar(
                    name=name if len(name) <= _NAME else f"{name[: _NAME - 1]}…",
                    y=y,
                    mean=across(mean),
                    low=across(left),
                    high=across(right),
                    value=number(mean),
                    about=f"{task}, {one.model}: {with_interval(one.score, number)}",
                    color=models.index(one.model) % _COLORS + 1,
                )
            )
            name, y = "", y + _ROW
        y += _ROW // 3
    return _BarChart(title=metric, height=y, zero=across(0.0), bars=bars, models=models)


def _ends(one: TaskResult) -> tuple[float, float, float]:
    """Return the lower end, mean and upper end; all equal without an interval."""
    found = one.score
    low = found.mean if found.low is None else found.low
    high = found.mean if found.high is None else found.high
    return low, found.mean, high
