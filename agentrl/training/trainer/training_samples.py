"""From a step's scored episodes to samples: who is asked, what is credited, what is left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from agentrl.algorithms import episode_selection, importance_correction, requirements
from agentrl.algorithms.advantages import check_states, company, credit
from agentrl.algorithms.kl import ESTIMATES
from agentrl.algorithms.trajectories import Judgement, split, trajectories
from agentrl.config import Config
from agentrl.training.batching.batches import evenly, only, teaches, to_samples
from agentrl.training.learner.implicit_reward import slopes
from agentrl.training.learner.token_scores import Judged
from agentrl.types import Sample, ScoredEpisode

Judge = Callable[[Sequence[Sample]], list[Judged]]


@dataclass(slots=True, kw_only=True, frozen=True)
class Lesson:
    """What one training step teaches."""

    samples: list[Sample]
    advantages: list[list[list[float]]]
    """[E][T][R], of all episodes, group after group."""
    slopes: list[float]
    """Of each sample, for an implicit reward model; empty without one."""
    metrics: dict[str, float]


def lesson(
    groups: Sequence[Sequence[ScoredEpisode]],
    config: Config,
    judge: Judge,
    *,
    version: int,
    seed: int,
    greedy: Sequence[float] | None = None,
    kl_coefficient: float = 0.0,
) -> Lesson:
    """Credit the episodes of a step.

    Args:
        groups: siblings, scored.
        config: the whole job's.
        judge: see `Learner.judge`; asked only where the algorithm needs it.
        version: of the weights that are to be updated.
        seed: of what is drawn.
        greedy: the greedy policy's return on each group's seed, where that is asked for.
        kl_coefficient: what the divergence costs where it is part of the reward.

    Raises:
        ConfigError: the algorithm needs names of states, and there are none.
    """
    settings = config.algorithm
    check_states(groups, settings)
    groups = [episode_selection.shaped(group, config) for group in groups]
    episodes = [scored for group in groups for scored in group]
    plain = [
        sample
        for number, scored in enumerate(episodes)
        for sample in to_samples(
            scored.episode, evenly(scored.episode, [0.0] * len(scored.episode.turns)), number=number
        )
    ]
    judged = judge(plain) if requirements.judgement(settings) and plain else [Judged()] * len(plain)
    judgements = [Judgement()] * len(episodes)
    by_episode = _by_episode(plain, judged)
    for number, own in by_episode.items():
        judgements[number] = _judgement(own, config)
    in_reward = kl_coefficient if settings.kl == "reward" else 0.0
    played = trajectories(groups, judgements, greedy, in_reward)
    found = credit(played, settings)
    versions, bound = _versions(episodes, played.tokens, version), settings.max_staleness
    fresh = importance_correction.fresh(versions, version, bound) if bound >= 0 else played.tokens
    # What is recorded tells that these tokens count for nothing.
    advantages = split(torch.where(fresh, found.advantages, 0.0), groups)
    returns = None if found.returns is None else split(found.returns, groups)
    taught = [
        replace(
            sample,
            # Without a correction the ratio is to what the engine sampled with.
            old_logprobs=told.old_logprobs if requirements.correction(settings) else (),
            reference_logprobs=told.reference_logprobs,
            values=told.values,
        )
        for number, scored in enumerate(episodes)
        for sample, told in zip(
            to_samples(
                scored.episode,
                advantages[number],
                None if returns is None else returns[number],
                number=number,
            ),
            by_episode.get(number, []),
            strict=True,
        )
    ]
    metrics = {
        "company": company(played),
        "dead_groups": _dead(found.advantages, played.group),
        "stale": _mean(~fresh[played.tokens]),
        "lag": _mean(version - versions[played.tokens]),
    }
    gradients: list[float] = []
    if requirements.implicit(settings):
        gradients, metrics["implicit_loss"] = _slopes(groups, plain, judged, config)
    if bound >= 0:
        taught, gradients = _fresh(taught, gradients, version, bound)
    if settings.resample_power > 0:
        drawn = episode_selection.resampled(played.returns.tolist(), settings.resample_power, seed)
        taught, gradients = _drawn(taught, gradients, drawn)
    metrics["teaching"] = sum(map(teaches, taught)) / max(1, len(taught))
    return Lesson(samples=taught, advantages=advantages, slopes=gradients, metrics=metrics)


def _by_episode(samples: Sequence[Sample], judged: Sequence[Judged]) -> dict[int, list[Judged]]:
    found: dict[int, list[Judged]] = {}
    for sample, told in zip(samples, judged, strict=True):
        found.setdefault(sample.episode, []).append(told)
    return found


def _judgement(judged: Sequence[Judged], config: Config) -> Judgement:
    """Of one episode, by its samples in the order of their tokens."""
    settings = config.algorithm

    def joined(name: str) -> Tensor:
        return torch.tensor([v for told in judged for v in getattr(told, name)])

    old, reference = joined("old_logprobs"), joined("reference_logprobs")
    divergence = implicit = torch.zeros(0)
    if settings.kl == "reward":
        divergence = ESTIMATES[settings.kl_estimate](old, reference)
    if requirements.implicit(settings):
        implicit = settings.prime_beta * (joined("implicit_logprobs") - reference)
    return Judgement(
        values=tuple(joined("values").tolist()),
        last_value=judged[-1].last_value,
        divergence=tuple(divergence.tolist()),
        implicit=tuple(implicit.tolist()),
    )


def _fresh(
    samples: Sequence[Sample], slopes: Sequence[float], version: int, bound: int
) -> tuple[list[Sample], list[float]]:
    """Without tokens that are older than the bound, and without samples that have no others.

    No term of a loss sees them: not the policy's, not its entropy or divergence, not a critic's.
    """
    found = [
        only(
            sample,
            importance_correction.fresh(torch.tensor(sample.versions), version, bound).tolist(),
        )
        for sample in samples
    ]
    left = [number for number, sample in enumerate(found) if sample.places]
    return [found[n] for n in left], [slopes[n] for n in left] if slopes else []


def _mean(values: Tensor) -> float:
    return values.double().mean().item() if values.numel() else 0.0


def _versions(episodes: Sequence[ScoredEpisode], tokens: Tensor, version: int) -> Tensor:
    """int64[E, N], the weights that sampled each token; `version` where there is none."""
    versions = torch.full(tokens.shape, version)
    for row, scored in enumerate(episodes):
        own = [v for turn in scored.episode.turns for v in turn.reply_versions]
        versions[row, : len(own)] = torch.tensor(own, dtype=torch.int64)
    return versions


def _dead(advantages: Tensor, group: Tensor) -> float:
    """Share of the groups that teach nothing."""
    names = torch.unique(group)
    dead = sum(not bool(advantages[group == name].any()) for name in names)
    return dead / max(1, len(names))


def _slopes(
    groups: Sequence[Sequence[ScoredEpisode]],
    samples: Sequence[Sample],
    judged: Sequence[Judged],
    config: Config,
) -> tuple[list[float], float]:
    """Of each sample its episode's, over how many episodes say anything; and the loss of all."""
    labels: dict[int, float] = {}
    number = 0
    for group in groups:
        returns = [scored.total for scored in group if not scored.episode.outcome.void]
        for scored in group:
            if not scored.episode.outcome.void and len(set(returns)) > 1:
                low, high = min(returns), max(returns)
                labels[number] = (scored.total - low) / (high - low)
            number += 1
    ratios = dict.fromkeys(labels, 0.0)
    for sample, told in zip(samples, judged, strict=True):
        if sample.episode in ratios:
            own = zip(told.implicit_logprobs, told.reference_logprobs, strict=True)
            ratios[sample.episode] += sum(one - other for one, other in own)
    found, loss = slopes(list(ratios.values()), list(labels.values()), config.algorithm.prime_beta)
    by_episode = {e: slope / len(labels) for e, slope in zip(labels, found, strict=True)}
    return [by_episode.get(sample.episode, 0.0) for sample in samples], loss


def _drawn(
    samples: Sequence[Sample], gradients: Sequence[float], episodes: Sequence[int]
) -> tuple[list[Sample], list[float]]:
    """The samples of episodes that were drawn, some of them more than once."""
    chosen: list[int] = []
    numbers: list[int] = []
    for number, episode in enumerate(episodes):
        own = [place for place, sample in enumerate(samples) if sample.episode == episode]
        chosen += own
        numbers += [number] * len(own)
    taught = [
        replace(samples[place], episode=number)
        for place, number in zip(chosen, numbers, strict=True)
    ]
    return taught, [gradients[place] for place in chosen] if gradients else []
