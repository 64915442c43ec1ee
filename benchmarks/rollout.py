"""Rollouts against the bare engine on the same prompts (python benchmarks/rollout.py).

Plays number games on virtual phones, then sends the very same prompts to the same engine, as many
at once, with no game around them. Both in one process and one run; compare ratios, not times.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from agentrl import config as configuration
from agentrl.config import Config
from agentrl.policies.engine import Engine, Sampling
from agentrl.policies.opening import resolve_model
from agentrl.rollout.collector import tickets_of_step
from agentrl.rollout.rollouts import Rollouts
from agentrl.training import seeds, warm_start
from agentrl.training.learner import Learner
from agentrl.types import Prompt, ScoredEpisode, Turn


async def main() -> None:
    """Play, send the same prompts again, print the table."""
    options = _options()
    config = configuration.load(
        "number_game",
        [
            f"rollout.engine={options.engine}",
            "rollout.launcher=local",
            f"rollout.concurrency={options.phones}",
            f"devices.source=virtual:{options.phones}",
            f"devices.effect_delay_ms=[{options.delay},{options.delay}]",
            "warm_start.player=expert",
            f"warm_start.steps={options.steps}",
        ],
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = resolve_model(config.model, config.seed, Path(scratch) / "model")
        rollouts = Rollouts(config, folder, Path(scratch) if options.record else None)
        await rollouts.start()
        try:
            await _teach(config, rollouts, folder, Path(scratch))
            await _compare(config, rollouts, options.games)
        finally:
            await rollouts.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=["vllm", "hf"], default="vllm")
    parser.add_argument("--phones", type=int, default=32, help="and episodes in flight")
    parser.add_argument("--games", type=int, default=64)
    parser.add_argument("--delay", type=int, default=0, help="of a touch's effect, in ms")
    parser.add_argument("--steps", type=int, default=150, help="of cloning, so that it can play")
    parser.add_argument("--record", action="store_true", help="write episodes and frames as well")
    return parser.parse_args()


async def _teach(config: Config, rollouts: Rollouts, folder: Path, scratch: Path) -> None:
    """An untrained model taps nothing: let it copy the expert for a moment."""
    tickets = tickets_of_step("demo", 0, seeds.demonstration(config, 40), 1)
    demos = [scored.episode for scored in await rollouts.collect(tickets, "expert")]
    learner = Learner(config, folder)
    await warm_start.clone(config, demos, learner, folder, lambda *_: None)
    learner.save_weights(scratch / "cloned.safetensors")
    learner.close()
    await rollouts.load_weights(scratch / "cloned.safetensors", 1)


async def _compare(config: Config, rollouts: Rollouts, games: int) -> None:
    first = tickets_of_step("eval", 0, seeds.evaluation(config, config.rollout.concurrency), 1)
    await rollouts.collect(first)  # the engine starts and warms up
    assert rollouts.engine is not None
    tickets = tickets_of_step("train", 1, [10**6 + game for game in range(games)], 1)
    busy = _busy_s(rollouts)
    started = time.perf_counter()
    episodes = await rollouts.collect(tickets)
    ours_s = time.perf_counter() - started
    busy_share = (_busy_s(rollouts) - busy) / ours_s / rollouts.worlds.count
    turns = [turn for scored in episodes for turn in scored.episode.turns]
    bare_s = await _bare(rollouts.engine, turns, config)
    _print(episodes, turns, ours_s, bare_s, busy_share)


def _busy_s(rollouts: Rollouts) -> float:
    """Seconds that all phones together have spent on calls."""
    stats = rollouts.worlds.pool.stats()  # type: ignore[attr-defined]
    return sum(row.busy_s for row in stats)


async def _bare(engine: Engine, turns: Sequence[Turn], config: Config) -> float:
    """Seconds for the same prompts and as many tokens, as many at once."""
    seats = asyncio.Semaphore(config.rollout.concurrency)

    async def answer(number: int, turn: Turn) -> None:
        async with seats:
            engine.enter()
            try:
                await engine.generate(
                    Prompt(token_ids=turn.prompt_ids, images=turn.images),
                    Sampling(max_new_tokens=len(turn.reply_ids), seed=number),
                )
            finally:
                engine.leave()

    started = time.perf_counter()
    await asyncio.gather(*(answer(number, turn) for number, turn in enumerate(turns)))
    return time.perf_counter() - started


def _print(
    episodes: Sequence[ScoredEpisode],
    turns: Sequence[Turn],
    ours_s: float,
    bare_s: float,
    busy_share: float,
) -> None:
    tokens = sum(len(turn.reply_ids) for turn in turns)
    table = Table("", "games/s", "turns/s", "tokens/s", "of the bare engine")
    for name, seconds in (("games on phones", ours_s), ("bare engine", bare_s)):
        games = f"{len(episodes) / seconds:.2f}" if name != "bare engine" else ""
        table.add_row(
            name,
            games,
            f"{len(turns) / seconds:.1f}",
            f"{tokens / seconds:.0f}",
            f"{bare_s / seconds:.2f}",
        )
    console = Console()
    console.print(table)
    generate = sum(turn.timings["generate"] for turn in turns) / len(turns)
    act = sum(turn.timings["act"] for turn in turns) / len(turns)
    console.print(
        f"A turn waits {generate * 1e3:.0f} ms for its answer and {act * 1e3:.0f} ms for its "
        f"effect; each phone is busy {busy_share:.0%} of the time."
    )


if __name__ == "__main__":
    asyncio.run(main())
