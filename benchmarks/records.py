"""Rerun a row of the known tasks, beside its published value: python benchmarks/records.py TASK.

Runs `agentrl train` once per seed, and resumes runs that did not finish. Finished runs in `--runs`
are only read; with `--no-train`, all are. Each seed's row has its numbers of training episodes and
of demonstrations imitated, the level of random moves and of the demonstrations, and the results
before and after training with their 95% intervals over held-out episodes.
"""

import argparse
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from conditions import conditions
from paired import games_by_evaluation
from rich.console import Console
from safetensors import safe_open

import agentrl
from agentrl.confidence_intervals import Estimate, estimate, student_estimate
from agentrl.runs.episode_index import EpisodeIndex
from agentrl.runs.episode_summary import Summary
from agentrl.runs.run_folder import RunFolder
from agentrl.text_tables import UNLIMITED, ResultTable, print_table

ENV_REWARD = "reward/env_reward"
EVALUATIONS = ("before sampled", "after sampled", "after greedy")


@dataclass(slots=True, kw_only=True, frozen=True)
class Published:
    """A published result."""

    value: str
    model: str
    episodes: int | None
    """Number of training episodes; None if unknown."""
    source: str


@dataclass(slots=True, kw_only=True, frozen=True)
class Task:
    """A known task, and the job that trains on it."""

    config: str
    """Packaged configuration."""
    metric: str
    goal: str
    """What the task asks for, or its optimum."""
    published: Published | None = None
    budget: int | None = None
    """Maximum number of training episodes; None without a limit."""
    overrides: Sequence[str] = ()
    """Settings that differ from the configuration's."""


TASKS = {
    "number_line": Task(
        config="number_line", metric="success", goal="1.00", budget=2_560,
        published=Published(
            value="1.00", model="GiGPO, Qwen2-VL-2B", episodes=2_560, source="verl-agent's README",
        ),
    ),
    "ez_points": Task(
        config="ez_points", metric="success", goal="1.00", budget=12_800,
        published=Published(
            value="1.00", model="GiGPO, Qwen2.5-VL-3B", episodes=12_800,
            source="verl-agent's README",
        ),
    ),
    "sokoban": Task(
        config="sokoban_pixels", metric="success", goal=">= 0.85", budget=38_400,
        published=Published(
            value="0.81", model="GiGPO, Qwen2.5-VL-3B", episodes=38_400,
            source="verl-agent's README",
        ),
    ),
    "frozen_lake_maps": Task(
        config="frozen_lake_maps", metric="success", goal=">= 0.95",
        published=Published(
            value="0.71 (0.344 reproduced)", model="3B", episodes=None, source="VAGEN, VAGEN#63",
        ),
    ),
    "frozen_lake_chunks": Task(
        config="frozen_lake_maps", metric="success", goal=">= 0.95",
        overrides=[
            "env.max_actions_per_reply=5", "env.player_kwargs.noise=0.65",
            "rollout.max_new_tokens=24", "rollout.max_context=128",
        ],
        published=Published(
            value="0.71 (0.344 reproduced)", model="3B", episodes=None, source="VAGEN, VAGEN#63",
        ),
    ),
    "frozen_lake_slippery": Task(
        config="frozen_lake_slippery", metric=ENV_REWARD, goal=">= 0.70 (optimum 0.74)",
    ),
    "cliff_walking": Task(config="cliff_walking", metric=ENV_REWARD, goal="-13 (optimum)"),
    "taxi": Task(config="taxi", metric=ENV_REWARD, goal="7.9 (optimum), delivers in >= 0.95"),
    "minigrid": Task(config="minigrid", metric=ENV_REWARD, goal=">= 0.9 (optimum 0.97)"),
    "minigrid_doorkey": Task(
        config="minigrid_doorkey", metric=ENV_REWARD, goal=">= 0.9 (optimum 0.96)",
    ),
    "minigrid_doorkey_6x6": Task(
        config="minigrid_doorkey", metric=ENV_REWARD, goal=">= 0.9 (optimum 0.97)",
        overrides=[
            "env.id=minigrid:MiniGrid-DoorKey-6x6-v0", "model.image_size=[168, 168]",
            "eval.rings={levels: {size: 7}, rules: {highlight: false}}",
            "warm_start.relabel=expert", "train.steps=30",
        ],
    ),
    "minigrid_fetch": Task(
        config="minigrid_doorkey", metric=ENV_REWARD, goal=">= 0.9 (optimum 0.97)",
        overrides=[
            "env.id=minigrid:MiniGrid-Fetch-5x5-N2-v0", "env.max_turns=20",
            'env.translator_kwargs.text="{{ observation.mission }}"',
            'model.tiny.words=["<action>", "</action>", forward, pickup, drop, toggle, done, key, '
            "ball, red, green, blue, purple, yellow, grey]",
            "eval.rings={levels: {size: 6}, rules: {highlight: false}}",
        ],
    ),
    "snake": Task(config="snake", metric="score", goal=">= 0.8 of the expert's"),
    "2048": Task(config="game_2048", metric="score", goal=">= 0.8 of the expert's"),
    "space_fighter": Task(config="space_fighter", metric="score", goal=">= 0.8 of the expert's"),
    "flip": Task(config="flip", metric="score", goal=">= 0.8 of the expert's"),
}  # fmt: skip
CONFIGS = Path(agentrl.__file__).parent / "configs"


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("task", choices=[*TASKS])
    parser.add_argument("overrides", nargs="*", help="key=value, for all new runs")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the runs")
    parser.add_argument("--no-train", action="store_true", help="only read finished runs")
    options = parser.parse_args()
    task = TASKS[options.task]
    runs = {seed: options.runs / f"{options.task}-{seed}" for seed in options.seeds}
    if options.no_train:
        runs = {seed: run for seed, run in runs.items() if is_finished(run)}
        if not runs:
            names = ", ".join(f"{options.task}-{seed}" for seed in options.seeds)
            raise SystemExit(f"{options.runs} has no finished run {names}; omit --no-train")
    for seed, run in runs.items():
        train(task, seed, run, options.overrides)
    console = Console()
    print(conditions("torch", "transformers"))
    width = console.width if console.is_terminal else UNLIMITED
    for part in table(options.task, task, runs).fold(width):
        print_table(part, console)
    print("\n".join(notes(task, next(iter(runs.values())))))


def is_finished(run: Path) -> bool:
    """Return whether a run has evaluated its trained model."""
    return "after" in RunFolder(run).read_summary()


def train(task: Task, seed: int, run: Path, overrides: Sequence[str]) -> None:
    """Train a task in a process of its own, unless the run has finished.

    Raises:
        SystemExit: the task has no configuration, or training failed.
    """
    # Cached weights would hide the minutes of the warm start and its demonstrations.
    own = ["warm_start.cache=null", f"seed={seed}"]
    finish(run, task.config, [*own, *task.overrides, *overrides])


def finish(run: Path, config: str, settings: Sequence[str]) -> None:
    """Train a packaged configuration, or resume its training, unless the run has finished.

    Raises:
        SystemExit: the configuration does not exist, or training failed.
    """
    if is_finished(run):
        return
    path = CONFIGS / f"{config}.yaml"
    if not path.is_file():
        raise SystemExit(f"{path} does not exist; this version cannot train this task")
    started = [str(path), *settings, f"run.name={run.name}", f"run.dir={run.parent}"]
    job = ["--resume", str(run)] if run.exists() else started
    done = subprocess.run([sys.executable, "-m", "agentrl", "train", *job], check=False)
    if done.returncode != 0:
        raise SystemExit(f"{run}: training ended with status {done.returncode}")


def table(name: str, task: Task, runs: dict[int, Path]) -> ResultTable:
    """Return a row for each seed, and for several seeds a row with the mean over seeds."""
    rows, means = list[list[str]](), list[list[float]]()
    for seed, run in runs.items():
        found = results(run, task.metric)
        means.append([found[one].mean for one in EVALUATIONS])
        summary = RunFolder(run).read_summary()
        played = EpisodeIndex(run).all()
        trained = [one for one in played if one.split == "train" and not one.outcome.void]
        over = " (over)" if task.budget is not None and len(trained) > task.budget else ""
        rows.append([
            name, str(seed), f"{len(trained):,}{over}", *_demonstrated(run, played, task.metric),
            _mean_of(summary.get("random"), task.metric),
            *(_shown(found[one]) for one in EVALUATIONS),
            f"{sum(summary['seconds'].values()) / 60:.1f}", task.goal, _value(task),
        ])  # fmt: skip
    if len(rows) > 1:
        over_seeds = [_shown(student_estimate(column)) for column in zip(*means, strict=True)]
        rows.append([name, "mean", "", "", "", "", *over_seeds, "", task.goal, _value(task)])
    columns = ("task", "seed", "episodes", "demonstrations", "their level", "random",
               *EVALUATIONS, "minutes", "goal", "published")  # fmt: skip
    return ResultTable(columns=columns, rows=rows, names=2)


def results(run: Path, metric: str) -> dict[str, Estimate]:
    """Estimate a metric's mean in each of `EVALUATIONS` from its episodes.

    Raises:
        SystemExit: the run lacks an evaluation or the metric.
    """
    games = games_by_evaluation(run)
    found = {}
    for name in EVALUATIONS:
        values = [game[metric] for game in games.get(name, {}).values() if metric in game]
        if not values:
            raise SystemExit(f"{run}: the evaluation {name!r} has no metric {metric!r}")
        found[name] = estimate(values)
    return found


def notes(task: Task, run: Path) -> list[str]:
    """Return the lines below the table: what is measured, and what differs from what was published.

    Args:
        task: the task.
        run: one of its runs, which shows our settings.
    """
    config = RunFolder(run).read_config()
    warm, env = config["warm_start"], config["env"]
    imitated = "without demonstrations"
    if warm["player"] is not None:
        own = env["player_kwargs"]
        how = f" with {own}" if own else ""
        imitated = f"imitates the player {warm['player']!r}{how}"
        if isinstance(warm.get("relabel"), str):
            imitated = (
                f"imitates the replies of {warm['relabel']!r} to the screens of the player "
                f"{warm['player']!r}{how}"
            )
    here = f"here: {num_parameters(run):,} parameters from random weights, {imitated}"
    lines = [f"metric: {task.metric}; intervals: 95%, over held-out episodes or over seeds", here]
    if (other := task.published) is not None:
        episodes = "unknown" if other.episodes is None else f"{other.episodes:,}"
        lines.append(
            f"published: {other.value}, {other.model}, a pretrained model without demonstrations, "
            f"episodes: {episodes} ({other.source})"
        )
    return lines


def num_parameters(run: Path) -> int:
    """Return the number of parameters of a run's trained model."""
    total = 0
    for file in (run / "model").glob("*.safetensors"):
        with safe_open(file, "pt") as weights:
            total += sum(
                math.prod(weights.get_slice(key).get_shape())
                for key in weights.keys()  # noqa: SIM118
            )
    return total


def _demonstrated(run: Path, played: Sequence[Summary], metric: str) -> tuple[str, str]:
    """Return the number of demonstrations and their mean; `-` if they came from the cache."""
    demos = [one for one in played if one.split == "demo" and not one.outcome.void]
    if not demos:
        warm = RunFolder(run).read_config()["warm_start"]
        num = warm["episodes"] if warm["player"] is not None else 0
        return f"{num:,}", "-"
    values = [one.env_reward if metric == ENV_REWARD else one.metrics[metric] for one in demos]
    return f"{len(demos):,}", f"{fmean(values):.3f}"


def _mean_of(result: Any, metric: str) -> str:
    return f"{result[metric]:.3f}" if result and metric in result else "-"


def _shown(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return f"{found.mean:.3f}"
    return f"{found.mean:.3f} ({found.low:.3f} to {found.high:.3f})"


def _value(task: Task) -> str:
    return "-" if task.published is None else task.published.value


if __name__ == "__main__":
    main()
