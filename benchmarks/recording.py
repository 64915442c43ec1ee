"""Measure how much recording slows down rollouts (python benchmarks/recording.py).

Plays the same number games on virtual phones, alternating between recording everything and
recording nothing, in one process; compare ratios, not times. Rounds differ by several percent even
without recording: `--control` never records and shows by how much.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import fmean, median, stdev

from conditions import conditions
from rich.console import Console
from rich.table import Table
from rollout import _clone_expert

from agentrl import config as configuration
from agentrl.policies.models.model_source import resolve_model
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.rollout_worker import RolloutWorker


async def main() -> None:
    """Play alternately and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=["vllm", "hf"], default="hf")
    parser.add_argument("--phones", type=int, default=16, help="phones, and concurrent episodes")
    parser.add_argument("--games", type=int, default=16, help="games per round")
    parser.add_argument("--rounds", type=int, default=30, help="rounds of each kind")
    parser.add_argument("--demos", type=int, default=40, help="games of the expert to clone")
    parser.add_argument(
        "--steps",
        type=int,
        default=150,
        help="training steps of cloning, so that the model can play",
    )
    parser.add_argument("--control", action="store_true", help="never record")
    options = parser.parse_args()
    Console().print(conditions("torch", "transformers"), highlight=False, soft_wrap=True)
    config = configuration.load(
        "number_game",
        [
            f"rollout.engine={options.engine}", "rollout.launcher=local",
            f"rollout.concurrency={options.phones}", f"devices.source=virtual:{options.phones}",
            "warm_start.player=expert", f"warm_start.steps={options.steps}",
        ],
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        folder = resolve_model(config.model, config.seed, Path(scratch) / "model")
        run, weights = Path(scratch) / "run", Path(scratch) / "cloned.safetensors"
        kinds = {
            "recorded": RolloutWorker(
                plan_rollouts(config), folder, None if options.control else run
            ),
            "not": RolloutWorker(plan_rollouts(config), folder, None),
        }
        try:
            for rollouts in kinds.values():
                await rollouts.start()
            await _clone_expert(config, kinds["not"], folder, weights, options.demos)
            await kinds["recorded"].engines.load_weights(weights, 1)
            took = await _played(kinds, options.games, options.rounds)
        finally:
            for rollouts in kinds.values():
                await rollouts.close()
        size = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
    _print(took, options.games, size / 1e6)


async def _played(
    kinds: dict[str, RolloutWorker], games: int, rounds: int
) -> dict[str, list[float]]:
    """Return the turns per second of each round, without the first, warm-up round of each kind."""
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds + 1):
        # Alternate which kind goes first, so that drifts in machine speed cancel out.
        for kind in (list(kinds), list(kinds)[::-1])[number % 2]:
            first = 10**6 + number * games
            tickets = requests_of_step("eval", number, list(range(first, first + games)), 1)
            started = time.perf_counter()
            episodes = await kinds[kind].collect(tickets)
            turns = sum(len(scored.episode.turns) for scored in episodes)
            if number:
                found[kind].append(turns / (time.perf_counter() - started))
    return found


def _print(took: dict[str, list[float]], games: int, megabytes: float) -> None:
    table = Table("", "turns/s, median of rounds", "lowest", "highest")
    for kind, paces in took.items():
        table.add_row(kind, f"{median(paces):.1f}", f"{min(paces):.1f}", f"{max(paces):.1f}")
    Console().print(table)
    costs = [1 - with_ / without for with_, without in zip(*took.values(), strict=True)]
    Console().print(
        f"recording slowed rollouts by {fmean(costs):.1%}, standard error "
        f"{stdev(costs) / len(costs) ** 0.5:.1%} over {len(costs)} pairs of rounds of {games} "
        f"games, {megabytes:.0f} MB in total",
        highlight=False,
    )


if __name__ == "__main__":
    asyncio.run(main())
