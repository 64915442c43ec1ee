"""Tables of suite results, for the terminal and for web pages."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.confidence_intervals import Estimate, with_interval
from agentrl.runs.rings import SEEDS
from agentrl.text.formatting import printable
from agentrl.text_tables import ResultTable
from agentrl.training.evaluation.suite_results import TaskResult, differences, means, other_rings

MEAN = "mean of the tasks"
PART = "  "
"""Prefix of category names in the table."""
_MAX_CATEGORIES = 30


@dataclass(slots=True, kw_only=True, frozen=True)
class SuiteTable:
    """Results of one suite: a row for each task and model, followed by its categories' rows."""

    suite: str
    about: str
    """Name of the metric, if all tasks have the same one."""
    table: ResultTable
    footnotes: Sequence[str]


def suite_tables(results: Sequence[TaskResult]) -> list[SuiteTable]:
    """Make a table for each suite, in the order of the results.

    Raises:
        ConfigError: two results of a task come from different settings.
    """
    by_suite: dict[str, list[TaskResult]] = {}
    for one in results:
        by_suite.setdefault(one.suite, []).append(one)
    return [_table(suite, tasks) for suite, tasks in by_suite.items()]


def _table(suite: str, results: Sequence[TaskResult]) -> SuiteTable:
    models = list(dict.fromkeys(one.model for one in results))
    compared = {(one.task, one.model): one.estimate for one in differences(results)}
    layout = _Layout(
        first=models[0],
        several=len(models) > 1,
        metrics=len({one.metric for one in results}) > 1,
        ks=sorted({k for one in results if one.samples > 1 for k in one.pass_at}),
    )
    rows = []
    for task in dict.fromkeys(one.task for one in results):
        for one in (one for one in results if one.task == task):
            rows.append(layout.row(one, task, one.metric, compared.get((task, one.model))))
            parts = list(one.by_category.items())[:_MAX_CATEGORIES]
            kind = (one.category or "").rpartition(".")[2]
            rows += [layout.row(part, f"{PART}{kind} {name}", "", None) for name, part in parts]
    for (_, model, ring), mean in means(results).items():
        rows.append(layout.mean_row(model, ring, mean))
    return SuiteTable(
        suite=suite,
        about="" if layout.metrics else results[0].metric,
        table=ResultTable(
            columns=[printable(column) for column in layout.columns],
            rows=[[printable(cell) for cell in row] for row in rows],
            names=1 + layout.several + layout.metrics,
            framed=False,
        ),
        footnotes=_footnotes(results, layout.ks),
    )


@dataclass(slots=True, kw_only=True, frozen=True)
class _Layout:
    """Columns of a table."""

    first: str
    """The model that all others are compared with."""
    several: bool
    metrics: bool
    """True if tasks have different metrics."""
    ks: Sequence[int]

    @property
    def columns(self) -> list[str]:
        named = [
            "task",
            *(["model"] if self.several else []),
            *(["metric"] if self.metrics else []),
        ]
        against = [f"minus {self.first}"] if self.several else []
        return [*named, "mean", *against, *(f"pass@{k}" for k in self.ks), "episodes", "void"]

    def row(self, one: TaskResult, name: str, metric: str, gain: Estimate | None) -> list[str]:
        named = [*[one.model] * self.several, *[metric] * self.metrics]
        against = [with_interval(gain, number, signed=True)] if self.several else []
        rates = ["" if k not in one.pass_at else number(one.pass_at[k].mean) for k in self.ks]
        seeds = len(one.values)
        # With void samples, some seeds have fewer samples, so only the total is correct.
        is_even = all(len(values) == one.samples for values in one.values.values())
        played = f"{seeds} x {one.samples}" if is_even and one.samples > 1 else str(one.episodes)
        # A void episode may have no first info, so its category is unknown.
        void = "" if name.startswith(PART) else str(one.void)
        mean = with_interval(one.score, number)
        if unscored := one.metrics.get("unscored"):
            mean += f", {unscored:.1%} unscored"
        return [name, *named, mean, *against, *rates, played, void]

    def mean_row(self, model: str, ring: str, mean: float) -> list[str]:
        named = [*[model] * self.several, *[""] * self.metrics]
        cells = [MEAN if ring == SEEDS else f"{MEAN}, unseen {ring}", *named, number(mean)]
        return [*cells, *([""] * (len(self.columns) - len(cells)))]


def _footnotes(results: Sequence[TaskResult], ks: Sequence[int]) -> list[str]:
    """Explain how the intervals were computed and which episodes are excluded."""
    methods = {one.score.method for one in results}
    compares = len({one.model for one in results}) > 1
    notes = []
    if "wilson" in methods:
        notes.append("Intervals of proportions of seeds: 95%, Wilson's score interval.")
    if "t" in methods:
        notes.append("Intervals of means over seeds: 95%, Student's t.")
    if compares:
        notes.append("Differences: paired by seed, with 95% intervals by Student's t.")
    if skipped := other_rings(results):
        notes.append(f"Not compared, because the rings' settings differ: {', '.join(skipped)}.")
    if ks:
        notes.append("pass@k: the unbiased estimate of arXiv:2107.03374, averaged over seeds.")
    if hidden := [one.task for one in results if len(one.by_category) > _MAX_CATEGORIES]:
        notes.append(f"{hidden[0]}: the other categories are in results.json.")
    return notes


def number(value: float) -> str:
    """Format a number with two decimals, or one decimal if it is large."""
    return f"{value:.2f}" if abs(value) < 100 else f"{value:,.1f}"
