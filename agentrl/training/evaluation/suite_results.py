"""Results of suites: estimates per task, differences between models, and result files."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from agentrl.confidence_intervals import (
    Estimate,
    estimate,
    ks_of,
    pass_at_k,
    student_estimate,
)
from agentrl.errors import ConfigError
from agentrl.replay import Run, Summary
from agentrl.runs.file_reading import as_object, is_number, load_json
from agentrl.runs.rings import RING_COLUMNS, SEEDS, ring_of
from agentrl.training.evaluation.held_out_evaluation import Evaluation
from agentrl.training.evaluation.suite import SuiteTask

RESULTS, RESULT = "results.json", "result.json"
"""Names of the result files: of a whole evaluation, and of a task (in its episodes' folder)."""
_SHARES = ("success", "won", "accuracy")
"""Metrics of an episode's success; models are compared by the first available one."""
_DIGITS = 6


@dataclass(kw_only=True, frozen=True)
class TaskResult:
    """Result of a model on a task."""

    model: str
    """Name of the model on the command line, such as `runs/NAME@best`."""
    suite: str
    task: str
    metric: str
    passes: bool
    """True if an episode passes when its metric is at least 1."""
    settings: str
    """Key of the environment and settings; results with equal keys are comparable."""
    samples: int
    """Number of times that each seed was played."""
    void: int
    """Number of failed episodes, which are excluded from the estimates."""
    seconds: float
    run: str
    """Folder of the recorded episodes, relative to the evaluation's folder."""
    metrics: Mapping[str, float]
    """Means of all metrics over the valid episodes."""
    values: Mapping[int, Sequence[float]]
    """The metric of each valid episode, by seed."""
    category: str | None
    """Source of the categories: a data set column, or a key of the info."""
    categories: Mapping[int, str]
    """Category of the episodes, by seed."""
    ring: str = SEEDS
    """The task's ring (`eval.rings`): `seeds`, `levels` or `rules`."""

    @property
    def episodes(self) -> int:
        """Number of valid episodes."""
        return sum(map(len, self.values.values()))

    @cached_property
    def by_seed(self) -> dict[int, float]:
        """Mean over the samples of each seed; only seeds are independent of each other."""
        return {seed: sum(values) / len(values) for seed, values in self.values.items()}

    @cached_property
    def score(self) -> Estimate:
        """Mean over seeds, with its confidence interval."""
        # Samples of a seed are correlated, so counting each separately would make the interval too
        # narrow.
        return estimate(list(self.by_seed.values()), are_shares=self.metric in _SHARES)

    @cached_property
    def pass_at(self) -> dict[int, Estimate]:
        """pass@k by k, over seeds with at least k valid samples; empty without `passes`."""
        found = {}
        for k in ks_of(self.samples) if self.passes else ():
            # If samples are void, a seed may have fewer than k, and its pass@k is undefined.
            enough = [values for values in self.values.values() if len(values) >= k]
            rates = [pass_at_k(len(v), sum(one >= 1 for one in v), k) for v in enough]
            if rates:
                found[k] = estimate(rates, are_shares=True)
        return found

    @cached_property
    def by_category(self) -> dict[str, "TaskResult"]:
        """Split the result by the category of the seeds; `void` is not split."""
        found = {}
        for category in sorted(set(self.categories.values()), key=_natural):
            seeds = {s for s, c in self.categories.items() if c == category and s in self.values}
            values = {seed: self.values[seed] for seed in sorted(seeds)}
            found[category] = replace(self, values=values, categories={}, void=0, metrics={})
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the estimates and all values from which `from_json` recomputes them."""
        return {
            **_estimates(self),
            "by_category": {name: _estimates(one) for name, one in self.by_category.items()},
            **asdict(self),
        }

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> "TaskResult":
        """Read the output of `to_json`, and recompute the estimates.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: `tree` is not a result.
        """
        # Results of earlier versions have no ring.
        own = {
            "ring": SEEDS,
            **{one.name: tree[one.name] for one in fields(cls) if one.name in tree},
        }
        # In JSON, the seeds are strings.
        own["values"] = {int(seed): list(map(float, v)) for seed, v in own["values"].items()}
        own["categories"] = {int(seed): str(c) for seed, c in own["categories"].items()}
        if not own["values"] or not all(own["values"].values()):
            raise ValueError("no episode")
        return cls(**own)


@dataclass(slots=True, kw_only=True, frozen=True)
class Difference:
    """A model's improvement over the first model, on the seeds that both played."""

    suite: str
    task: str
    model: str
    than: str
    estimate: Estimate


def result_of(
    task: SuiteTask, found: Evaluation, *, model: str, suite: str, settings: str, run: str
) -> TaskResult:
    """Compute a task's result from its evaluation.

    Args:
        task: the evaluated task.
        found: the evaluation.
        model: see `TaskResult`.
        suite: name of the suite.
        settings: see `TaskResult`.
        run: see `TaskResult`.

    Raises:
        ConfigError: an episode lacks the task's metric.
    """
    known = next((name for name in _SHARES if name in found.metrics), None)
    metric = task.metric or known or "reward"
    # A mean over only the episodes that have the metric would not be comparable between models.
    for row in (row for rows in found.samples.values() for row in rows):
        if metric not in row:
            raise ConfigError(
                f"metric={metric}: an episode of {task.name!r} lacks this metric. It has "
                f"{', '.join(row)}"
            )
    return TaskResult(
        model=model,
        suite=suite,
        task=task.name,
        metric=metric,
        passes=task.metric is not None or known is not None,
        settings=settings,
        samples=task.samples,
        void=found.void,
        seconds=round(found.seconds, 1),
        run=run,
        metrics={name: round(value, _DIGITS) for name, value in found.metrics.items()},
        values={seed: [row[metric] for row in rows] for seed, rows in found.samples.items()},
        category=task.category,
        categories=found.categories,
    )


def differences(results: Sequence[TaskResult]) -> list[Difference]:
    """Compare each model with the first one on each task that both have played, paired by seed.

    Rings with different settings are left out: see `other_rings`.

    Raises:
        ConfigError: two results of a task come from different settings.
    """
    found = []
    for other, one in _pairs(results):
        if not _is_same_task(other, one):
            if one.ring != SEEDS:
                continue
            raise ConfigError(
                f"{one.suite}, {one.task!r}: {other.model} and {one.model} played with different "
                f"settings, so their results cannot be compared: {other.settings} ({other.metric}) "
                f"and {one.settings} ({one.metric})"
            )
        # Pair by seed, because seeds differ more in difficulty than models do in performance.
        shared = [one.by_seed[s] - mean for s, mean in other.by_seed.items() if s in one.by_seed]
        if shared:
            found.append(
                Difference(
                    suite=one.suite, task=one.task, model=one.model, than=other.model,
                    estimate=student_estimate(shared),
                )
            )  # fmt: skip
    return found


def other_rings(results: Sequence[TaskResult]) -> list[str]:
    """Return the tasks of rings that a model played with other settings than the first model."""
    pairs = _pairs(results)
    return list(dict.fromkeys(b.task for a, b in pairs if not _is_same_task(a, b)))


def _pairs(results: Sequence[TaskResult]) -> Iterator[tuple[TaskResult, TaskResult]]:
    """Yield the first model's result of a task with each other model's."""
    first = {(r.suite, r.task): r for r in reversed(results)}
    for one in results:
        if (other := first[one.suite, one.task]) is not one:
            yield other, one


def _is_same_task(one: TaskResult, other: TaskResult) -> bool:
    return (one.settings, one.metric) == (other.settings, other.metric)


def means(results: Iterable[TaskResult]) -> dict[tuple[str, str, str], float]:
    """Return the mean over tasks by suite, model and ring, if several have the same metric.

    A mean over rings would hide how far a skill reaches, and depend on the rings that were played.
    """
    by_model: dict[tuple[str, str, str], list[TaskResult]] = {}
    for one in results:
        by_model.setdefault((one.suite, one.model, one.ring), []).append(one)
    return {
        key: sum(one.score.mean for one in tasks) / len(tasks)
        for key, tasks in by_model.items()
        if len(tasks) > 1 and len({one.metric for one in tasks}) == 1
    }


def tree_of(results: Sequence[TaskResult]) -> dict[str, Any]:
    """Return all results and differences as plain values, as written to `results.json`."""
    return {
        "results": [one.to_json() for one in results],
        "differences": [
            {**asdict(one), "estimate": _rounded(one.estimate)} for one in differences(results)
        ],
        "means": [
            {"suite": suite, "model": model, "ring": ring, "mean": round(mean, _DIGITS)}
            for (suite, model, ring), mean in means(results).items()
        ],
    }


def read_results(paths: Sequence[Path]) -> list[TaskResult]:
    """Read the results of several evaluations, given as folders or `results.json` files.

    An evaluation without a suite is a single task, named after its environment. If models in
    several files have the same name, the folder's name is appended.

    Raises:
        ConfigError: a file does not exist or is damaged.
    """
    files = [path / RESULTS if path.is_dir() else path for path in paths]
    read = [_read(file) for file in files]
    found: list[TaskResult] = []
    for file, results in zip(files, read, strict=True):
        # A model may have been evaluated twice, for example before and after a change.
        others = {one.model for other in read if other is not results for one in other}
        for one in results:
            name = one.model
            if name in others:
                name = f"{name} ({file.parent.name})"
            run = str(file.parent / one.run)
            found.append(replace(one, model=name, run=run))
    return found


def _read(file: Path) -> list[TaskResult]:
    try:
        return [TaskResult.from_json(one) for one in load_json(file)["results"]]
    except FileNotFoundError:
        is_folder = file.name == RESULTS and file.parent.is_dir()
        if is_folder and (recorded := _recorded(file.parent)):
            return recorded
        raise ConfigError(
            f"{file}: no such file; give the folder of an evaluation, or its {RESULTS}"
        ) from None
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        why = f": {error}" if isinstance(error, OSError | ValueError) else ""
        raise ConfigError(f"{file}: cannot be read as suite results{why}") from error


def _recorded(run: Path) -> list[TaskResult]:
    """Read an evaluation without a suite from its episodes: a task per ring with valid episodes."""
    recorded = Run(run)
    # Only evaluations record a policy; a training run's episodes come from many model versions.
    episodes = recorded.episodes() if "policy" in recorded.summary else []
    by_ring = {
        ring: [one for one in episodes if ring_of(one.label) == ring] for ring in RING_COLUMNS
    }
    found = (_recorded_ring(recorded, ring, played) for ring, played in by_ring.items())
    return [one for one in found if one is not None]


def _recorded_ring(recorded: Run, ring: str, episodes: Sequence[Summary]) -> TaskResult | None:
    valid = [one for one in episodes if not one.outcome.void]
    if not valid:
        return None
    summary = recorded.summary if ring == SEEDS else recorded.summary.get("rings", {}).get(ring, {})
    rows = [dict(one.metrics) | {"reward": one.reward} for one in valid]
    metric = next((name for name in _SHARES if all(name in row for row in rows)), "reward")
    values: dict[int, list[float]] = {}
    for one, row in zip(valid, rows, strict=True):
        values.setdefault(one.seed, []).append(row[metric])
    config = recorded.config
    played = {key: config.get(key) for key in ("env", "rewards", "mixture")}
    if ring != SEEDS:
        played["ring"] = as_object(as_object(config.get("eval")).get("rings")).get(ring)
    return TaskResult(
        model=recorded.path.resolve().name,
        suite="evaluation",
        task=valid[-1].env_id if ring == SEEDS else f"{valid[-1].env_id}, unseen {ring}",
        ring=ring,
        metric=metric,
        passes=metric != "reward",
        settings=json.dumps(played, default=str),
        samples=max(map(len, values.values())),
        void=len(episodes) - len(valid),
        seconds=round(sum(one.seconds for one in valid), 1),
        run=".",
        metrics={name: round(v, _DIGITS) for name, v in summary.items() if is_number(v)},
        values=values,
        category=None,
        categories={},
    )


def _estimates(one: TaskResult) -> dict[str, Any]:
    return {
        "seeds": len(one.values),
        "episodes": one.episodes,
        "score": _rounded(one.score),
        "pass_at": {str(k): _rounded(found) for k, found in one.pass_at.items()},
    }


def _rounded(found: Estimate) -> dict[str, Any]:
    tree = asdict(found)
    return {key: round(v, _DIGITS) if isinstance(v, float) else v for key, v in tree.items()}


def _natural(category: str) -> tuple[int, float, str]:
    """Return a key that sorts numbers by value, before text."""
    try:
        return 0, float(category), category
    except ValueError:
        return 1, 0.0, category
