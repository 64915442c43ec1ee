"""Warm start: behavior cloning on demonstrations."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from agentrl.config import OptimConfig, WarmStartConfig
from agentrl.errors import EnvError
from agentrl.event_loop import Worker
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.workers.rollouts import Rollouts
from agentrl.training import env_seeds
from agentrl.training.learner.optimizer import learning_rate
from agentrl.training.offline.supervised_dataset import Demonstration, SupervisedDataset

if TYPE_CHECKING:
    from agentrl.training.learner.learner_group import AnyLearner

Report = Callable[[int, dict[str, float], int], None]
"""Takes a step, its metrics and the total number of steps."""


async def play_demonstrations(
    warm: WarmStartConfig, mixture: Mapping[str, float], run_seed: int, rollouts: Rollouts
) -> list[Demonstration]:
    """Play the demonstrations with the warm start's scripted player.

    Args:
        warm: the warm start.
        mixture: how much of them is played in each environment (`Config.mixture_weights`).
        run_seed: seed of the whole run.
        rollouts: play them.

    Raises:
        WorldError: more than half of the episodes are void, or no phone is left.
    """
    assert warm.player is not None
    seeds = env_seeds.demonstration_seeds(run_seed, warm.episodes)
    rng = np.random.default_rng(run_seed)
    names = list(map(str, rng.choice([*mixture], len(seeds), p=[*mixture.values()])))
    requests = requests_of_step("demo", 0, seeds, 1, envs=names)
    played = await rollouts.collect(requests, warm.player)
    return [
        Demonstration(episode=scored.episode, by_player=True)
        for scored in played
        if not scored.episode.outcome.void
    ]


async def train_on_demonstrations(
    warm: WarmStartConfig,
    dataset: SupervisedDataset,
    learner: "AnyLearner",
    report: Report,
    deadline_s: float,
) -> None:
    """Train the learner on demonstrations.

    Args:
        warm: the number of steps, their batch size and learning rates.
        dataset: the samples to draw from.
        learner: is trained in place.
        report: called after every step.
        deadline_s: for the player to relabel one batch (`rollout.deadline_s`).

    Raises:
        EnvError: the player did not answer in time.
    """
    learner.begin_offline(warm)
    schedule = OptimConfig(
        lr=warm.lr,
        lr_schedule="cosine",
        lr_warmup_steps=warm.lr_warmup_steps,
        lr_final_ratio=warm.lr_final_ratio,
    )
    decay_steps = max(1, warm.steps - warm.lr_warmup_steps)  # decay begins after the warmup
    relabeler = Worker("relabeler")  # the player relabels samples, and may hang
    skipped = 0
    try:
        for step in range(1, warm.steps + 1):
            async with asyncio.timeout(deadline_s):
                samples = await relabeler.call(dataset.draw, warm.batch)
            taken = step - 1 - skipped
            past = max(0, taken + 1 - warm.lr_warmup_steps) / decay_steps
            lr = learning_rate(schedule, past, taken)
            metrics = await asyncio.to_thread(learner.offline_step, samples, lr)
            skipped += int(metrics["skipped"])
            report(step, metrics, warm.steps)
    except TimeoutError:
        raise EnvError(
            f"the player {warm.player!r} did not answer within rollout.deadline_s={deadline_s:g} s"
        ) from None
    finally:
        relabeler.close()
    learner.end_offline()
