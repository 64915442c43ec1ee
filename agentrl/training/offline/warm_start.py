"""Warm start: behavior cloning on demonstrations before reinforcement learning."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from agentrl.config import OptimConfig, WarmStartConfig
from agentrl.errors import EnvError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.configured_image_size import resize_for
from agentrl.policies.open_encoder import open_encoder
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.workers.rollouts_interface import Rollouts
from agentrl.runs.resume_state import ResumeState
from agentrl.training import env_seeds
from agentrl.training.demonstrations import warm_start_cache
from agentrl.training.demonstrations.demonstration_dataset import (
    Demonstration,
    DemonstrationDataset,
    load_labeler,
    rerender_demonstrations,
)
from agentrl.training.learner.learner_group import AnyLearner
from agentrl.training.monitoring.run_stages import RunStages
from agentrl.training.offline.offline_trainer import LearningRates, Report, train_on_examples
from agentrl.training.plan.job_plan import JobPlan
from agentrl.training.stop_signals import Stopping
from agentrl.types import TokenSequence
from agentrl.worker_thread import Worker

log = logging.getLogger(__name__)


async def warm_start(
    plan: JobPlan,
    warm: WarmStartConfig,
    start: Path,
    rollouts: Rollouts,
    learner: AnyLearner,
    progress: RunStages,
    stopping: Stopping,
) -> None:
    """Train the initial model on demonstrations, or load the cached result."""
    settings = plan.settings
    envs = {name: task.train for name, task in plan.play.trained.items()}
    ids = plan.play.env_ids
    if all(warm_start_cache.has_warm_start(start, warm, one) for one in ids):
        log.warning(
            "warm start skipped because %s already had one for %s (warm_start.repeat=true repeats "
            "it)",
            start,
            " and ".join(ids),
        )
        return
    cached = warm_start_cache.cache_folder(
        warm, settings.model, [*envs.values()], plan.weights, settings.devices, settings.seed,
        plan.demonstrations.episodes,
    )  # fmt: skip
    if cached is not None and cached.is_dir():
        log.warning("warm start loaded from %s (warm_start.cache=null repeats it)", cached)
        learner.load_weights(cached / "model.safetensors")
        return
    with progress.stage("demonstrations"):
        encoder = await asyncio.to_thread(open_encoder, settings.model, start)
        demonstrations = await _demonstrations(plan, warm, rollouts, encoder, progress)
    with progress.stage("warm start"):
        labelers = {
            name: load_labeler(
                env, warm, lambda dialect: resize_for(dialect, settings.model, encoder)
            )
            for name, env in envs.items()
        }
        players = {name: one for name, one in labelers.items() if one is not None}
        dataset = DemonstrationDataset(demonstrations, warm, players, encoder, settings.seed)

        def report(step: int, metrics: Mapping[str, float]) -> None:
            progress.reporter.warm_start(step, metrics, warm.steps)

        deadline_s = settings.rollout.deadline_s
        await train_on_demonstrations(warm, dataset, learner, report, deadline_s, stopping)
    if cached is not None and warm_start_cache.save_to_cache(cached, warm, ids, learner):
        # Use the same weights, rounded to `model.dtype`, that later runs load from the cache.
        learner.load_weights(cached / "model.safetensors")


async def _demonstrations(
    plan: JobPlan,
    warm: WarmStartConfig,
    rollouts: Rollouts,
    encoder: ChatEncoder,
    progress: RunStages,
) -> list[Demonstration]:
    """Return the recorded demonstrations, followed by the scripted player's demonstrations."""
    demonstrations = await asyncio.to_thread(
        rerender_demonstrations,
        plan.demonstrations.episodes,
        plan.play.tasks[""].train,
        encoder,
        plan.settings.rollout.max_new_tokens,
        progress.reporter.progress,
    )
    if warm.player is not None:
        async with progress.watched(warm.episodes):
            seed = plan.settings.seed
            demonstrations += await play_demonstrations(warm, plan.weights, seed, rollouts)
    return demonstrations


async def play_demonstrations(
    warm: WarmStartConfig, mixture: Mapping[str, float], run_seed: int, rollouts: Rollouts
) -> list[Demonstration]:
    """Play the demonstrations with the warm start's scripted player.

    Raises:
        WorldError: more than half of the episodes are void, or no phones are left.
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
    dataset: DemonstrationDataset,
    learner: AnyLearner,
    report: Report,
    deadline_s: float,
    stopping: Stopping,
) -> None:
    """Train the learner on demonstrations, and report every step.

    Raises:
        EnvError: the player did not relabel a batch within `rollout.deadline_s`.
    """
    optim = OptimConfig(
        lr=warm.lr,
        lr_schedule="cosine",
        lr_warmup_steps=warm.lr_warmup_steps,
        lr_final_ratio=warm.lr_final_ratio,
    )
    rates = LearningRates(optim=optim, steps=warm.steps, constant_steps=warm.lr_warmup_steps)
    relabeler = Worker("relabeler")  # a thread, because the player may hang

    async def draw(step: int) -> list[TokenSequence]:
        async with asyncio.timeout(deadline_s):
            return await relabeler.call(dataset.draw, warm.batch)

    learner.begin_offline(warm)
    try:
        # Count steps separately, because an interrupted warm start starts over.
        await train_on_examples(draw, learner, rates, ResumeState(), stopping, report)
    except TimeoutError:
        raise EnvError(
            f"the player {warm.labeler!r} did not relabel a batch within "
            f"rollout.deadline_s={deadline_s:g} s"
        ) from None
    finally:
        relabeler.close()
    learner.end_offline()
