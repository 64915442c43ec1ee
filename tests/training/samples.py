"""Small episodes and samples for the tests of the trainer."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from agentrl.algorithms.core.algorithm import AdvantageResult, load_algorithm
from agentrl.check.support.sample_steps import sample_turn, scored_episode
from agentrl.config import Config
from agentrl.policies.models import ModelAdapter
from agentrl.training.batching.episode_splitting import split_into_sequences
from agentrl.training.learner.learner import Learner
from agentrl.training.trainer.training_samples import (
    ScoreTokens,
    StepSamples,
    build_samples,
    build_training_samples,
)
from agentrl.types import Episode, Image, Outcome, ScoredEpisode, TokenScores, TrainingSample, Turn


def turn(
    prompt: Sequence[int] = (1,), reply: Sequence[int] = (2,), *, images: tuple[Image, ...] = ()
) -> Turn:
    sampled = sample_turn(len(reply), None)
    return replace(sampled, prompt_ids=tuple(prompt), reply_ids=tuple(reply), images=images)


def episode(turns: Sequence[Turn], outcome: Outcome = Outcome.TERMINATED) -> Episode:
    return scored_episode(turns, [0.0] * len(turns), outcome).episode


def sample(
    model_adapter: ModelAdapter,
    seed: int,
    *,
    reply: int = 6,
    text: int = 8,
    pictures: int = 1,
    advantage: float | None = None,
    side: int = 28,
) -> TrainingSample:
    """Random tokens after random images of 3 by 5 sides of a token, as one turn."""
    rng = np.random.default_rng(seed)
    allowed = [token for token in range(200) if token not in model_adapter.banned_token_ids]
    ids = [int(t) for t in rng.choice(allowed, text)]
    images = tuple(
        rng.integers(0, 255, (5 * side, 3 * side, 3), dtype=np.uint8) for _ in range(pictures)
    )
    for image in images:
        ids += model_adapter.image_markup(image)
    answer = [int(t) for t in rng.choice(allowed, reply)]
    value = float(rng.normal()) if advantage is None else advantage
    logprobs = tuple(rng.normal(-5.3, 0.1, reply).tolist())
    return TrainingSample(
        token_ids=(*ids, *answer),
        sampled_positions=tuple(range(len(ids), len(ids) + reply)),
        logprobs=logprobs,
        versions=(0,) * reply,
        turns=(0,) * reply,
        images=images,
        episode=seed,
        advantages=(value,) * reply,
        old_logprobs=logprobs,
        reference_logprobs=None,
        values=None,
        returns=None,
        bce_gradient=None,
    )


def with_logprobs(item: TrainingSample, logprobs: Sequence[float]) -> TrainingSample:
    """The same sample, sampled by an engine with these log-probabilities."""
    return replace(item, logprobs=tuple(logprobs), old_logprobs=tuple(logprobs))


def with_scores(learner: Learner, items: Sequence[TrainingSample]) -> list[TrainingSample]:
    """The same samples, scored by the models that the algorithm requires.

    Returns exceed the critic's values by the advantages, and the gradient of the implicit reward is
    the first advantage.
    """
    found = []
    for item, scores in zip(items, learner.score_tokens(items), strict=True):
        returns = None
        if scores.values is not None:
            returns = tuple(v + a for v, a in zip(scores.values, item.advantages, strict=True))
        found.append(
            replace(
                item,
                old_logprobs=scores.old_logprobs or item.logprobs,
                reference_logprobs=scores.reference_logprobs,
                values=scores.values,
                returns=returns,
                bce_gradient=None if scores.implicit_logprobs is None else item.advantages[0],
            )
        )
    return found


def step_samples(
    groups: Sequence[Sequence[ScoredEpisode]],
    config: Config,
    score_tokens: ScoreTokens,
    *,
    version: int,
    seed: int,
    greedy: Sequence[float] | None = None,
    kl_coefficient: float = 0.0,
) -> StepSamples:
    """`build_training_samples` with the settings of a configuration."""
    return build_training_samples(
        groups,
        load_algorithm(config.algorithm),
        score_tokens,
        max_new_tokens=config.rollout.max_new_tokens,
        version=version,
        seed=seed,
        greedy=greedy,
        kl_coefficient=kl_coefficient,
    )


def training_samples(
    played: Episode,
    advantages: Sequence[float],
    returns: Sequence[float] | None = None,
    index: int = 0,
) -> list[TrainingSample]:
    """The samples of one episode, given a number for each of its sampled tokens."""

    def row(values: Sequence[float]) -> Tensor:
        return torch.tensor([*[[0.0] * len(values)] * index, values], dtype=torch.float64)

    sequences = split_into_sequences(played, index)
    result = AdvantageResult(
        advantages=row(advantages), returns=None if returns is None else row(returns)
    )
    return build_samples(
        sequences,
        [TokenScores()] * len(sequences),
        result,
        fresh=torch.ones_like(result.advantages, dtype=torch.bool),
        use_old_logprobs=False,
        gradients=None,
    )
