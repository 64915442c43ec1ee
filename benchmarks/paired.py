"""Measure each run's improvement by training (python benchmarks/paired.py RUN [RUN ...]).

Pairs the games before and after training by their seeds, sampled and greedy, and prints the 95%
bootstrap interval of the mean difference, which shows whether chance explains it.
benchmarks/compare_runs.py compares two runs.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compare_runs import Scores, paired_interval
from rich.console import Console
from rich.table import Table

DEFAULT_METRICS = ("accuracy", "success", "reward")
"""Without `--metric`, the first of these metrics that the environment reports is used."""


def main() -> None:
    """Print one row per run and decoding method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument(
        "--metric", help="metric, such as success; see `metrics` in evaluations.jsonl"
    )
    options = parser.parse_args()
    table = Table("run", "played", "metric", "games", "before", "after", "difference", "95%")
    for run in options.runs:
        for row in rows(run, options.metric):
            table.add_row(*row)
    Console().print(table)


def rows(run: Path, metric: str | None = None) -> list[Sequence[str]]:
    """Return a row for each decoding method evaluated before and after training.

    Raises:
        SystemExit: the run has no such evaluations, or does not have this metric.
    """
    games = games_by_evaluation(run)
    decodings = [
        name for name in ("sampled", "greedy") if {f"before {name}", f"after {name}"} <= set(games)
    ]
    if not decodings:
        raise SystemExit(f"{run} has no evaluations before and after training; has it finished?")
    metrics = next(iter(games[f"before {decodings[0]}"].values()))
    metric = metric or next(name for name in DEFAULT_METRICS if name in metrics)
    if metric not in metrics:
        raise SystemExit(f"{run} has no metric {metric!r}; choose from {', '.join(metrics)}")
    table: list[Sequence[str]] = []
    for decoding in decodings:
        before, after = (
            {seed: game[metric] for seed, game in games[f"{when} {decoding}"].items()}
            for when in ("before", "after")
        )
        table.append([run.name, decoding, metric, *_compared(before, after)])
    return table


def games_by_evaluation(run: Path) -> dict[str, Mapping[str, Mapping[str, Any]]]:
    """Return each seed's metrics by evaluation name; the last evaluation of a name counts."""
    lines = (run / "evaluations.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["name"]: record["by_seed"] for record in map(json.loads, lines)}


def _compared(before: Scores, after: Scores) -> list[str]:
    low, mean, high, games = paired_interval(before, after)
    shared = before.keys() & after.keys()
    means = (sum(scores[seed] for seed in shared) / games for scores in (before, after))
    return [str(games), *(f"{m:.3f}" for m in means), f"{mean:+.3f}", f"{low:+.3f} to {high:+.3f}"]


if __name__ == "__main__":
    main()
