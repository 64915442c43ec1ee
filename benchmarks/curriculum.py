"""Episodes until a target: sampling by solve rate against uniform sampling (Sokoban).

Levels of mixed difficulty on 5x5 boards, from one move to two boxes, in equal shares. A short warm
start solves the easiest; both samplers then train from the same weights (the same cached warm
start) with the same settings, and are evaluated every third step on the same held-out boards of
all levels. A run has reached the target when the mean of two evaluations in a row has.

Run: python benchmarks/curriculum.py --seeds 3
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from conditions import conditions
from rich.console import Console
from rich.table import Table

import agentrl

LEVELS: dict[str, dict[str, Any]] = {
    "1 move": {"min_moves": 1, "max_moves": 1},
    "2-3": {"min_moves": 2, "max_moves": 3},
    "4-5": {"min_moves": 4, "max_moves": 5},
    "6-7": {"min_moves": 6, "max_moves": 7},
    "8 or more": {"min_moves": 8},
    "2 boxes": {"boxes": 2, "min_moves": 8},
}
SAMPLERS = ("uniform", "solve_rate")
EVERY, SMOOTHED = 3, 2
"""Steps between evaluations, and evaluations that are averaged."""
_T_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78}
"""Quantiles of Student's t distribution, by degrees of freedom."""


def settings(seed: int, sampler: str, options: argparse.Namespace, folder: str) -> list[str]:
    """The overrides of `configs/sokoban.yaml`."""
    mixture = [
        {"name": name.replace(" ", "_"), "env": {"kwargs": kwargs}}
        for name, kwargs in LEVELS.items()
    ]
    return [
        f"seed={seed}",
        f"run.dir={folder}",
        f"run.name={sampler}-{seed}",
        "env.kwargs.min_moves=1",
        "env.kwargs.max_steps=20",
        "env.max_turns=20",
        f"mixture={json.dumps(mixture)}",
        f"sampling={sampler}",
        f"rollout.groups={options.groups}",
        "rollout.group_size=8",
        "warm_start.episodes=400",
        f"warm_start.steps={options.warm_steps}",
        "eval.kwargs={split: eval}",
        "eval.baselines=[]",
        f"eval.every={EVERY}",
        f"eval.episodes={options.episodes}",
        f"eval.episodes_during={options.episodes}",
        f"train.steps={options.steps}",
        "optim.lr=6e-4",
        "optim.lr_final_ratio=1.0",
        "algorithm.minibatch=128",
        "optim.lr_warmup_steps=5",
        "checkpoint.every=1000",
        "run.frames=none",
        "logging=[file]",
    ]


def curve(run: Path) -> list[tuple[int, float]]:
    """Step and success of each evaluation, from before training on."""
    found = {}
    for line in (run / "evaluations.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["name"] == "before sampled" or entry["name"].startswith("step "):
            found[int(entry["step"])] = float(entry["metrics"]["success"])
    return sorted(found.items())


def reached(points: Sequence[tuple[int, float]], target: float) -> int | None:
    """The step of the first evaluation that ends a window whose mean is at least the target."""
    for end in range(SMOOTHED, len(points) + 1):
        if statistics.fmean(value for _, value in points[end - SMOOTHED : end]) >= target:
            return points[end - 1][0]
    return None


def interval(values: Sequence[float]) -> str:
    """Mean and 95% interval (Student's t)."""
    mean = statistics.fmean(values)
    if len(values) - 1 not in _T_95:
        return f"{mean:+.2f}"
    half = _T_95[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:+.2f} ({mean - half:+.2f} to {mean + half:+.2f})"


def main() -> None:
    """Train, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--groups", type=int, default=12)
    parser.add_argument("--episodes", type=int, default=16, help="of each level and evaluation")
    parser.add_argument("--warm-steps", type=int, default=150)
    parser.add_argument("--target", type=float, default=0.6, help="mean success over all levels")
    parser.add_argument("--runs", help="keep the runs in this folder, and use those that are there")
    options = parser.parse_args()
    print(conditions("torch", "transformers"), flush=True)
    with TemporaryDirectory(prefix="agentrl-curriculum-") as scratch:
        report(options, options.runs or scratch)


def report(options: argparse.Namespace, folder: str) -> None:
    """One row per run, then the paired differences."""
    size = options.groups * 8
    table = Table(
        "seed", "sampler", "before", "after", f"episodes to {options.target:g}", "minutes"
    )
    points: dict[tuple[int, str], list[tuple[int, float]]] = {}
    for seed in range(options.seeds):
        for sampler in SAMPLERS:
            run, started = Path(folder) / f"{sampler}-{seed}", time.perf_counter()
            if not (run / "summary.json").is_file():
                agentrl.train("sokoban", overrides=settings(seed, sampler, options, folder))
            own = points[seed, sampler] = curve(run)
            step = reached(own, options.target)
            table.add_row(
                str(seed), sampler, f"{own[0][1]:.2f}",
                f"{statistics.fmean(value for _, value in own[-SMOOTHED:]):.2f}",
                "not reached" if step is None else f"{step * size:,}",
                f"{(time.perf_counter() - started) / 60:.1f}",
            )  # fmt: skip
    Console(width=100).print(table)
    print(differences(points, options.target, options.seeds, size))


def differences(
    points: dict[tuple[int, str], list[tuple[int, float]]], target: float, seeds: int, size: int
) -> str:
    """Solve rate minus uniform, seed by seed."""
    after, mean, ratios = [], [], []
    for seed in range(seeds):
        uniform, own = (points[seed, sampler] for sampler in SAMPLERS)
        last = [statistics.fmean(v for _, v in one[-SMOOTHED:]) for one in (uniform, own)]
        after.append(last[1] - last[0])
        means = [statistics.fmean(v for _, v in one) for one in (uniform, own)]
        mean.append(means[1] - means[0])
        steps = [reached(one, target) for one in (uniform, own)]
        if steps[0] is not None and steps[1] is not None:
            ratios.append((steps[1] - steps[0]) * size)
    lines = [
        f"success after training, solve_rate minus uniform: {interval(after)}",
        f"mean success over all evaluations, solve_rate minus uniform: {interval(mean)}",
    ]
    if len(ratios) == seeds:
        lines.append(f"episodes to the target, solve_rate minus uniform: {interval(ratios)}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
