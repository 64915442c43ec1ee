"""What training brought, run by run (python benchmarks/paired.py RUN [RUN ...]).

Pairs the games of each run before and after training by their seeds, sampled and greedy, and prints
the 95% bootstrap interval of the mean difference: whether the games that happened to be drawn would
explain it. Two runs are compared by benchmarks/compare_runs.py.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compare_runs import Scores, paired_interval
from rich.console import Console
from rich.table import Table

USUAL = ("accuracy", "success", "reward")
"""What is compared where no metric is named: the first that the environment tells."""


def main() -> None:
    """Print one row for each way of playing of each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--metric", help="such as success; see `metrics` in evaluations.jsonl")
    options = parser.parse_args()
    table = Table("run", "played", "metric", "games", "before", "after", "difference", "95%")
    for run in options.runs:
        for row in rows(run, options.metric):
            table.add_row(*row)
    Console().print(table)


def rows(run: Path, metric: str | None = None) -> list[Sequence[str]]:
    """Each way of playing that was evaluated before and after training.

    Raises:
        SystemExit: the run has no such evaluations, or does not tell this metric.
    """
    games = played(run)
    ways = [way for way in ("sampled", "greedy") if {f"before {way}", f"after {way}"} <= set(games)]
    if not ways:
        raise SystemExit(f"{run}: no evaluations before and after training; has it ended?")
    told = next(iter(games[f"before {ways[0]}"].values()))
    metric = metric or next(name for name in USUAL if name in told)
    if metric not in told:
        raise SystemExit(f"{run}: no metric {metric!r}; there are {', '.join(told)}")
    found: list[Sequence[str]] = []
    for way in ways:
        before, after = (
            {seed: game[metric] for seed, game in games[f"{when} {way}"].items()}
            for when in ("before", "after")
        )
        found.append([run.name, way, metric, *_compared(before, after)])
    return found


def played(run: Path) -> dict[str, Mapping[str, Mapping[str, Any]]]:
    """Per evaluation, what each seed's game told; the last one of a name counts."""
    lines = (run / "evaluations.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["name"]: record["by_seed"] for record in map(json.loads, lines)}


def _compared(before: Scores, after: Scores) -> list[str]:
    low, mean, high, games = paired_interval(before, after)
    shared = before.keys() & after.keys()
    means = (sum(scores[seed] for seed in shared) / games for scores in (before, after))
    return [str(games), *(f"{m:.3f}" for m in means), f"{mean:+.3f}", f"{low:+.3f} to {high:+.3f}"]


if __name__ == "__main__":
    main()
