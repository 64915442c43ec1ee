"""Training samples from a step's scored episodes: score tokens, compute advantages, build."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress, islice

import torch
from torch import Tensor

from agentrl.algorithms.core.advantages import (
    compute_advantages,
    state_match_fraction,
    zero_advantage_groups,
)
from agentrl.algorithms.core.algorithm import (
    AdvantageResult,
    Algorithm,
    check_state_keys,
    method_boundary,
)
from agentrl.algorithms.core.kl import ESTIMATES
from agentrl.algorithms.core.statistics import nearly_equal
from agentrl.algorithms.core.trajectories import (
    EpisodeScores,
    Trajectories,
    build_trajectories,
    split_by_turn,
)
from agentrl.training.batching.episode_splitting import split_into_sequences
from agentrl.training.learner.implicit_reward import bce_gradients
from agentrl.training.privileged_teacher import PrivilegedTeacher
from agentrl.types import ScoredEpisode, TokenScores, TokenSequence, TrainingSample

ScoreTokens = Callable[[Sequence[TokenSequence]], list[TokenScores]]


@dataclass(slots=True, kw_only=True, frozen=True)
class StepSamples:
    """Training data of one step."""

    samples: list[TrainingSample]
    advantages: list[list[list[float]]]
    """[E][T][R] advantages of all episodes, group after group."""
    metrics: dict[str, float]


def build_training_samples(
    groups: Sequence[Sequence[ScoredEpisode]],
    algorithm: Algorithm,
    score_tokens: ScoreTokens,
    *,
    max_new_tokens: int,
    version: int,
    seed: int,
    greedy: Sequence[float] | None = None,
    kl_coefficient: float = 0.0,
    teacher: PrivilegedTeacher | None = None,
) -> StepSamples:
    """Score the tokens of a step's episodes, compute advantages, and build samples.

    Args:
        groups: scored episodes, by group.
        algorithm: computes the advantages.
        score_tokens: `Learner.score_tokens`; called only if the algorithm requires scores.
        max_new_tokens: maximum number of tokens of a reply.
        version: version of the weights to be updated.
        seed: seed of `algorithm.resample`.
        greedy: the greedy policy's return on each group's seed, if required.
        kl_coefficient: coefficient of the KL in the reward, if `algorithm.kl.add_to` is `reward`.
        teacher: scores the tokens after its own prompts; None if it sees the policy's prompts.

    Raises:
        ConfigError: the algorithm requires state keys, but the episodes have none.
        LearnerError: a method of the algorithm raised an error.
    """
    check_state_keys(groups, algorithm)
    with method_boundary(algorithm, "shape_rewards"):
        groups = [algorithm.shape_rewards(group, max_new_tokens) for group in groups]
    episodes = [scored for group in groups for scored in group]
    sequences, scores = _scored_sequences(episodes, algorithm, score_tokens, teacher)
    by_episode = _by_episode(sequences, scores, len(episodes), algorithm)
    played = build_trajectories(groups, by_episode, greedy, kl_coefficient)
    result = compute_advantages(played, algorithm)
    versions = _versions(episodes, played.token_mask, version)
    replayed = torch.tensor([scored.replayed for scored in episodes])[:, None]
    # What is replayed on purpose is never stale. The advantages above were normalized with stale
    # tokens; from here these have no weight.
    fresh = replayed | _fresh(versions, version, algorithm.config.max_staleness)
    used = replace(result, advantages=torch.where(fresh, result.advantages, 0.0))
    gradients, loss = _episode_gradients(groups, sequences, scores, algorithm)
    corrects = algorithm.config.importance_correction.kind != "none"
    samples = build_samples(
        sequences, scores, used, fresh=fresh, use_old_logprobs=corrects, gradients=gradients
    )
    samples = [replace(one, replayed=episodes[one.episode].replayed) for one in samples]
    samples = _resampled(samples, played, algorithm, seed)
    metrics = {
        **loss,
        **_advantage_metrics(algorithm, played, result),
        "stale": _mean(~fresh[played.token_mask]),
        "lag": _mean(version - versions[played.token_mask & ~replayed]),
        "nonzero_advantage_fraction": _mean(torch.tensor([s.has_advantage for s in samples])),
    }
    advantages = split_by_turn(used.advantages, groups)
    return StepSamples(samples=samples, advantages=advantages, metrics=metrics)


def _scored_sequences(
    episodes: Sequence[ScoredEpisode],
    algorithm: Algorithm,
    score_tokens: ScoreTokens,
    teacher: PrivilegedTeacher | None,
) -> tuple[list[TokenSequence], list[TokenScores]]:
    """Split episodes into sequences, and score the tokens if the algorithm requires it."""
    split = [split_into_sequences(scored.episode, at) for at, scored in enumerate(episodes)]
    sequences, scores = [*chain.from_iterable(split)], [TokenScores()] * sum(map(len, split))
    if sequences and algorithm.requirements().token_scores:
        scores = score_tokens(sequences)
    if teacher is not None:
        privileged = teacher.score([scored.episode for scored in episodes])
        scores = _with_teacher(sequences, scores, privileged)
    return sequences, scores


def _advantage_metrics(
    algorithm: Algorithm, played: Trajectories, result: AdvantageResult
) -> dict[str, float]:
    metrics = {"zero_advantage_groups": zero_advantage_groups(result.advantages, played.group)}
    if algorithm.requires.teacher is not None:
        metrics["teacher_kl"] = _mean(-played.teacher[played.token_mask])
    if (matched := state_match_fraction(played)) is not None:
        metrics["state_match_fraction"] = matched
    return metrics


def build_samples(
    sequences: Sequence[TokenSequence],
    scores: Sequence[TokenScores],
    result: AdvantageResult,
    *,
    fresh: Tensor,
    use_old_logprobs: bool,
    gradients: Mapping[int, float] | None,
) -> list[TrainingSample]:
    """Combine sequences, scores and advantages, without stale tokens.

    A stale token becomes part of the prompt, so that no loss includes it: neither the policy's,
    entropy and KL included, nor the critic's. Samples with only stale tokens are dropped.

    Args:
        sequences: sequences of the step's episodes, in order.
        scores: scores of each sequence.
        result: advantages of all episodes.
        fresh: bool[E, N], False for stale tokens.
        use_old_logprobs: whether the losses compare with the learner before the update; otherwise
            with the engine.
        gradients: gradients of the implicit reward's loss by episode, 0 if missing; None without an
            implicit reward.
    """
    advantages, keep = result.advantages.tolist(), fresh.tolist()
    returns = None if result.returns is None else result.returns.tolist()
    offsets = dict.fromkeys((sequence.episode for sequence in sequences), 0)
    samples = []
    for sequence, score in zip(sequences, scores, strict=True):
        episode, begin = sequence.episode, offsets[sequence.episode]
        offsets[episode] = end = begin + sequence.num_sampled
        kept = keep[episode][begin:end]
        old = score.old_logprobs if use_old_logprobs else sequence.logprobs
        assert old is not None, "score_tokens computed them"
        if any(kept):
            sample = TrainingSample(
                token_ids=sequence.token_ids,
                sampled_positions=tuple(compress(sequence.sampled_positions, kept)),
                logprobs=tuple(compress(sequence.logprobs, kept)),
                versions=tuple(compress(sequence.versions, kept)),
                turns=tuple(compress(sequence.turns, kept)),
                images=sequence.images,
                episode=episode,
                advantages=tuple(compress(advantages[episode][begin:end], kept)),
                old_logprobs=tuple(compress(old, kept)),
                reference_logprobs=_kept(score.reference_logprobs, kept),
                values=_kept(score.values, kept),
                returns=_kept(returns and returns[episode][begin:end], kept),
                bce_gradient=None if gradients is None else gradients.get(episode, 0.0),
            )
            samples.append(sample)
    return samples


def _kept(values: Sequence[float] | None, kept: Sequence[bool]) -> tuple[float, ...] | None:
    return None if values is None else tuple(compress(values, kept))


def _with_teacher(
    sequences: Sequence[TokenSequence],
    scores: Sequence[TokenScores],
    by_episode: Sequence[Sequence[float]],
) -> list[TokenScores]:
    """Return the scores with the teacher's log-probabilities, given those of each episode."""
    left = [iter(logprobs) for logprobs in by_episode]
    return [
        replace(score, teacher_logprobs=tuple(islice(left[one.episode], one.num_sampled)))
        for one, score in zip(sequences, scores, strict=True)
    ]


def _by_episode(
    sequences: Sequence[TokenSequence],
    scores: Sequence[TokenScores],
    num_episodes: int,
    algorithm: Algorithm,
) -> list[EpisodeScores]:
    """Return the scores that advantages depend on, for each episode's tokens in order."""
    own: list[list[TokenScores]] = [[] for _ in range(num_episodes)]
    for sequence, score in zip(sequences, scores, strict=True):
        own[sequence.episode].append(score)
    return [_episode_scores(scores, algorithm) if scores else EpisodeScores() for scores in own]


def _episode_scores(scores: Sequence[TokenScores], algorithm: Algorithm) -> EpisodeScores:
    def joined(values: Callable[[TokenScores], Sequence[float] | None]) -> Tensor:
        return torch.tensor([value for score in scores for value in values(score) or ()])

    reference = joined(lambda score: score.reference_logprobs)
    kl = implicit = torch.zeros(0)
    penalty, reward_model = algorithm.config.kl, algorithm.requires.implicit_reward
    if penalty.add_to == "reward":
        kl = ESTIMATES[penalty.estimator](joined(lambda score: score.old_logprobs), reference)
    if reward_model is not None:
        implicit_logprobs = joined(lambda score: score.implicit_logprobs)
        implicit = reward_model.beta * (implicit_logprobs - reference)
    teacher = torch.zeros(0)
    if algorithm.requires.teacher is not None:
        old = joined(lambda score: score.old_logprobs)
        # The estimate k1 of the reverse KL is the policy's log-ratio to the teacher.
        teacher = -ESTIMATES["k1"](old, joined(lambda score: score.teacher_logprobs))
    return EpisodeScores(
        values=tuple(joined(lambda score: score.values).tolist()),
        last_value=scores[-1].last_value,
        kl=tuple(kl.tolist()),
        implicit=tuple(implicit.tolist()),
        teacher=tuple(teacher.tolist()),
    )


def _versions(episodes: Sequence[ScoredEpisode], tokens: Tensor, version: int) -> Tensor:
    """Return int64[E, N], the version of the weights that sampled each token.

    Positions outside the mask get `version`.
    """
    versions = torch.full(tokens.shape, version)
    for row, scored in enumerate(episodes):
        own = [v for turn in scored.episode.turns for v in turn.reply_versions]
        versions[row, : len(own)] = torch.tensor(own, dtype=torch.int64)
    return versions


def _episode_gradients(
    groups: Sequence[Sequence[ScoredEpisode]],
    sequences: Sequence[TokenSequence],
    scores: Sequence[TokenScores],
    algorithm: Algorithm,
) -> tuple[dict[int, float] | None, dict[str, float]]:
    """Return the gradient of the implicit reward's loss by episode, and the loss as a metric.

    Labels are returns scaled to [0, 1] within a group; groups with equal returns have no labels.

    Returns:
        None and no metric if the algorithm has no implicit reward.
    """
    reward_model = algorithm.requires.implicit_reward
    if reward_model is None:
        return None, {}
    labels: dict[int, float] = {}
    index = 0
    for group in groups:
        returns = [scored.reward for scored in group if not scored.episode.outcome.void]
        low, high = min(returns, default=0.0), max(returns, default=0.0)
        for scored in group:
            if not scored.episode.outcome.void and not nearly_equal(low, high):
                labels[index] = (scored.reward - low) / (high - low)
            index += 1
    ratios = dict.fromkeys(labels, 0.0)
    for sequence, score in zip(sequences, scores, strict=True):
        if sequence.episode in ratios:
            pairs = zip(score.implicit_logprobs or (), score.reference_logprobs or (), strict=True)
            ratios[sequence.episode] += sum(implicit - reference for implicit, reference in pairs)
    outcomes = list(labels.values())
    gradients, loss = bce_gradients(list(ratios.values()), outcomes, reward_model.beta)
    by_episode = zip(labels, gradients, strict=True)
    scaled = {episode: gradient / len(labels) for episode, gradient in by_episode}
    return scaled, {"implicit_loss": loss}


def _resampled(
    samples: list[TrainingSample], played: Trajectories, algorithm: Algorithm, seed: int
) -> list[TrainingSample]:
    """Return the samples of the episodes that the algorithm draws, repeated if drawn repeatedly."""
    with method_boundary(algorithm, "resample"):
        valid = played.valid.tolist()
        drawn = algorithm.resample(played.returns.tolist(), valid, seed)
        if drawn is None:
            return samples
        allowed = [index for index, is_valid in enumerate(valid) if is_valid]
        if wrong := [index for index in drawn if index not in allowed]:
            raise ValueError(f"it returned {wrong[0]}, but the valid episodes are {allowed}")
    return [
        replace(sample, episode=index)
        for index, episode in enumerate(drawn)
        for sample in samples
        if sample.episode == episode
    ]


def _fresh(versions: Tensor, version: int, max_staleness: int | None) -> Tensor:
    """Return bool[E, N], False for stale tokens; see `algorithm.max_staleness`."""
    if max_staleness is None:
        return torch.ones_like(versions, dtype=torch.bool)
    return is_fresh(versions, version, max_staleness)


def is_fresh(versions: Tensor, version: int, bound: int) -> Tensor:
    """Return bool[N], True for tokens sampled at most `bound` versions behind `version`."""
    return version - versions <= bound


def _mean(values: Tensor) -> float:
    return values.double().mean().item() if values.numel() else 0.0
