"""The comparison of a training job's engines with its learner (`rollout.engine_check`)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from agentrl.policies.open_encoder import open_encoder
from agentrl.rollout.workers.rollouts_interface import Rollouts
from agentrl.training import env_seeds
from agentrl.training.engine_check.compared_prompts import opening_prompts
from agentrl.training.engine_check.engine_comparison import EngineComparison, compare_engine
from agentrl.training.learner.learner_group import AnyLearner
from agentrl.training.plan.job_plan import JobPlan
from agentrl.types import TokenPredictions, TokenSequence
from agentrl.weight_sync.publisher import Publisher


async def compare_with_learner(
    plan: JobPlan,
    start: Path,
    rollouts: Rollouts,
    learner: AnyLearner,
    publisher: Publisher,
    step: int,
) -> EngineComparison:
    """Compare the engines with the learner, which has the same weights.

    Args:
        plan: the job.
        start: folder of the model that the run starts from.
        rollouts: plays the first turns of a few held-out episodes; its engines have started.
        learner: predicts the tokens.
        publisher: frees the memory of engines that sleep, and wakes them.
        step: number of training steps of the weights.

    Raises:
        EngineMismatch: they disagree.
    """
    settings = plan.settings
    has_room = False

    async def predict(sequences: Sequence[TokenSequence]) -> list[TokenPredictions]:
        nonlocal has_room
        if not has_room:
            await publisher.make_room()
            has_room = True
        return await asyncio.to_thread(learner.predict_tokens, sequences)

    encoder = await asyncio.to_thread(open_encoder, settings.model, start)
    seeds = env_seeds.evaluation_seeds(settings.eval, settings.eval.episodes)
    prompts = await opening_prompts(
        rollouts, plan.play, encoder, seeds, mixture=[*plan.weights], step=step
    )
    found = await compare_engine(
        prompts,
        encoder,
        rollouts.engines.generate,
        predict,
        rollout=settings.rollout,
        dtype=settings.model.dtype,
    )
    if publisher.sleeps:
        await publisher.publish(step)
    return found
