"""Compare two runs on the same held-out seeds (python benchmarks/compare_runs.py RUN_A RUN_B).

Prints the mean of each evaluation that both runs have, and the paired 95% bootstrap interval of the
difference, which shows whether chance explains it.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

Scores = Mapping[str, float]


def main() -> None:
    """Read both runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--metric", default="accuracy")
    options = parser.parse_args()
    first, second = (evaluations(run, options.metric) for run in (options.first, options.second))
    table = Table(
        "evaluation", "games", str(options.first), str(options.second), "difference", "95%"
    )
    for name in [name for name in first if name in second]:
        low, mean, high, games = paired_interval(first[name], second[name])
        means = (np.mean(list(scores.values())) for scores in (first[name], second[name]))
        shown = [f"{mean:.4f}" for mean in means]
        table.add_row(name, str(games), *shown, f"{mean:+.4f}", f"[{low:+.4f}, {high:+.4f}]")
    Console().print(table)


def evaluations(run: Path, metric: str) -> dict[str, Scores]:
    """Return each seed's score by evaluation name; the last evaluation of a name counts."""
    by_name: dict[str, Scores] = {}
    for line in (run / "evaluations.jsonl").read_text().splitlines():
        record = json.loads(line)
        by_name[record["name"]] = {seed: game[metric] for seed, game in record["by_seed"].items()}
    return by_name


def paired_interval(
    first: Scores, second: Scores, draws: int = 10_000, seed: int = 0
) -> tuple[float, float, float, int]:
    """Bootstrap the mean difference, second minus first.

    Args:
        first: one score per seed.
        second: one score per seed; only seeds in both are used.
        draws: number of bootstrap resamples.
        seed: seed of the resampling.

    Returns:
        The 2.5th percentile, the mean, the 97.5th percentile, and the number of paired seeds.
    """
    shared = sorted(first.keys() & second.keys())
    differences = np.array([second[s] - first[s] for s in shared])
    picks = np.random.default_rng(seed).integers(len(shared), size=(draws, len(shared)))
    low, high = np.percentile(differences[picks].mean(axis=1), [2.5, 97.5])
    return float(low), float(differences.mean()), float(high), len(shared)


if __name__ == "__main__":
    main()
