"""Results of a pipeline's stages: the rows of `pipeline.json`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.runs.run_folder import RunFolder
from agentrl.runs.run_results import ENDS, estimates_of, results_of
from agentrl.text.formatting import format_duration


def stage_row(name: str, job: str, run: Path) -> dict[str, Any] | None:
    """Return a stage's row: name, job, run, steps, minutes, and results.

    The results are the metrics of the stage's evaluations `before` and `after`, with sampled
    replies or on held-out examples. `intervals` contains the 95% intervals, [low, high], of
    evaluations that played episodes, and of their `difference`, paired by seed.

    Returns:
        None if the stage has not finished.
    """
    summary = RunFolder(run).final_summary()
    if summary is None:
        return None
    results = {end: results_of(summary.get(end)) for end in ENDS}
    intervals = {
        metric: {
            end: [one.low, one.high]
            for end, one in estimates.items()
            if one.low is not None and one.high is not None
        }
        for metric, estimates in estimates_of(run, results).items()
    }
    return {
        "stage": name,
        "job": job,
        "run": str(run),
        "steps": summary.get("steps"),
        "minutes": round(sum(summary.get("seconds", {}).values()) / 60, 3),
        **results,
        "intervals": intervals,
    }


def rows_of(report: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield the report's rows as strings: stage, job, steps, time, and changes in metrics."""
    for row in report:
        changes = [
            f"{name} {row['before'][name]:.3g} -> {value:.3g}"
            if name in row["before"]
            else f"{name} {value:.3g}"
            for name, value in row["after"].items()
        ]
        took = format_duration(60 * row["minutes"])
        yield [row["stage"], row["job"], str(row["steps"]), took, ", ".join(changes)]
