"""What the stages of a pipeline have reached: the rows of `pipeline.json`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.training.evaluation.intervals import estimate, student_estimate
from agentrl.training.monitoring.metrics_file import read_metrics
from agentrl.training.monitoring.result_tables import format_duration
from agentrl.training.run_folder import RunFolder, read_summary

_COMPARED = ("reward", "success", "accuracy", "score", "loss", "token_accuracy")
_ENDS = ("before", "after")
_BySeed = Mapping[str, Mapping[str, float]]


def stage_row(name: str, job: str, run: Path) -> dict[str, Any] | None:
    """The row of a stage: its name, job, run, steps, minutes, and results.

    The results are those of its evaluations `before` and `after`, by metric: of sampled play, or of
    held-out examples. `intervals` has the 95% intervals of those that played episodes, and
    that of their `difference`, paired by seed; an interval is [low, high].

    Returns:
        None if the stage has not finished.
    """
    summary = read_summary(RunFolder(run)) if run.is_dir() else None
    if summary is None:
        return None
    results = {end: _results(summary.get(end)) for end in _ENDS}
    return {
        "stage": name,
        "job": job,
        "run": str(run),
        "steps": summary.get("steps"),
        "minutes": round(sum(summary.get("seconds", {}).values()) / 60, 3),
        **results,
        "intervals": _intervals(run, results),
    }


def _results(found: Any) -> dict[str, float]:
    if not isinstance(found, Mapping):
        return {}
    numbers = found.get("sampled", found)
    return {name: numbers[name] for name in _COMPARED if name in numbers}


def _intervals(
    run: Path, results: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, list[float]]]:
    """Intervals by metric; none of a mean that is not that of the seeds, such as of mixtures."""
    file, played = run / "evaluations.jsonl", dict[str, _BySeed]()
    for line in read_metrics(file, label="name") if file.is_file() else ():
        end, _, decoding = line["name"].partition(" ")
        if decoding == "sampled":
            played[end] = line.get("by_seed", {})
    found: dict[str, dict[str, list[float]]] = {}
    for metric in results["after"]:
        values = {
            end: {seed: row[metric] for seed, row in played.get(end, {}).items() if metric in row}
            for end in _ENDS
        }
        estimates = {end: estimate([*own.values()]) for end, own in values.items() if own}
        if any(
            not math.isclose(one.mean, results[end].get(metric, math.nan), abs_tol=1e-3)
            for end, one in estimates.items()
        ):
            continue
        before, after = values.values()
        if shared := [after[seed] - before[seed] for seed in before if seed in after]:
            estimates["difference"] = student_estimate(shared)
        found[metric] = {
            key: [one.low, one.high]
            for key, one in estimates.items()
            if one.low is not None and one.high is not None
        }
    return found


def rows_of(report: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """The report as texts: stage, job, steps, time, and what changed."""
    for row in report:
        changes = [
            f"{name} {row['before'][name]:.3g} -> {value:.3g}"
            if name in row["before"]
            else f"{name} {value:.3g}"
            for name, value in row["after"].items()
        ]
        took = format_duration(60 * row["minutes"])
        yield [row["stage"], row["job"], str(row["steps"]), took, ", ".join(changes)]
