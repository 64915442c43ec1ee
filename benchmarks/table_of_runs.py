"""Print results of finished runs as Markdown (python benchmarks/table_of_runs.py RUN [RUN ...]).

Each row names its metric: the first of accuracy, success and reward that the environment reports.
The last columns are the number of episodes and the minutes of all stages. Runs with `eval.rings`
have a second table: for each player, the results on unseen seeds, on unseen levels and under unseen
rules, with 95% intervals.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.runs.rings import RING_COLUMNS, ring_rows_of

_METRICS = ("accuracy", "success", "reward")


def main() -> None:
    """Print one row per run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    runs = parser.parse_args().runs
    summaries = [json.loads((run / "summary.json").read_text()) for run in runs]
    players = list(dict.fromkeys(name for s in summaries for name, _ in _results(s)))
    _print("run", ["metric", *players, "episodes", "minutes"])
    _print("---", ["---"] * (len(players) + 3))
    for run, summary in zip(runs, summaries, strict=True):
        found = dict(_results(summary))
        metric = next(key for key in _METRICS if any(key in result for result in found.values()))
        values = [found.get(player, {}).get(metric) for player in players]
        cells = ["" if value is None else f"{value:.3f}" for value in values]
        episodes = max(result["episodes"] for result in found.values())
        minutes = sum(summary["seconds"].values()) / 60
        _print(run.name, [metric, *cells, str(episodes), f"{minutes:.1f}"])
    rings = {run: ring_rows_of(run) for run in runs}
    if any(rings.values()):
        print()
        _print("run", ["player", "metric", *(f"unseen {ring}" for ring in RING_COLUMNS)])
        _print("---", ["---"] * (2 + len(RING_COLUMNS)))
        for run, rows in rings.items():
            for row in rows:
                _print(run.name, [row.player, row.metric, *row.cells])


def _results(summary: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the results of each player: `random`, `before, sampled`, ..."""
    for name, value in summary.items():
        if isinstance(value, Mapping) and "reward" in value:
            yield name, value
        elif name in ("before", "after"):
            yield from ((f"{name}, {how}", value[how]) for how in ("sampled", "greedy"))


def _print(first: str, cells: Sequence[str]) -> None:
    print("|", " | ".join([first, *cells]), "|")


if __name__ == "__main__":
    main()
