"""Results of finished runs as Markdown (python benchmarks/table_of_runs.py RUN [RUN ...]).

Accuracy, success or reward (the first that the environment reports), the number of episodes, and
the minutes of all stages.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def main() -> None:
    """Print one row per run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    runs = parser.parse_args().runs
    summaries = [json.loads((run / "summary.json").read_text()) for run in runs]
    players = list(dict.fromkeys(name for s in summaries for name, _ in _results(s)))
    _print("run", [*players, "episodes", "minutes"])
    _print("---", ["---"] * (len(players) + 2))
    for run, summary in zip(runs, summaries, strict=True):
        found = dict(_results(summary))
        cells = [f"{_score(found[p]):.3f}" if p in found else "" for p in players]
        episodes = max(result["episodes"] for result in found.values())
        _print(run.name, [*cells, str(episodes), f"{sum(summary['seconds'].values()) / 60:.1f}"])


def _results(summary: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every player with its results: `random`, `before, sampled`, ..."""
    for name, value in summary.items():
        if isinstance(value, Mapping) and "reward" in value:
            yield name, value
        elif name in ("before", "after"):
            yield from ((f"{name}, {how}", value[how]) for how in ("sampled", "greedy"))


def _score(result: Mapping[str, Any]) -> float:
    return float(next(result[key] for key in ("accuracy", "success", "reward") if key in result))


def _print(first: str, cells: Sequence[str]) -> None:
    print("|", " | ".join([first, *cells]), "|")


if __name__ == "__main__":
    main()
