"""Score recorded episodes with different rewards, and compare the scores."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agentrl import config as configuration
from agentrl import extras
from agentrl.config import RewardConfig
from agentrl.data.reward_inputs import CHATML, MissingInfo, QueryFormat
from agentrl.errors import ConfigError, RewardError
from agentrl.policies.models.model_source import local_folder
from agentrl.policies.open_encoder import open_encoder
from agentrl.replay import RecordedEpisode
from agentrl.rollout.rewards.scoring import RewardFunctions
from agentrl.types import Episode

log = logging.getLogger(__name__)

_DRAWS = 2000


@dataclass(slots=True, kw_only=True, frozen=True)
class RescoredEpisode:
    """An episode's recorded and new scores."""

    id: str
    group: str
    was: float
    now: float
    components: dict[str, float]
    """Unweighted components of the new score, summed over the turns."""

    @property
    def difference(self) -> float:
        """The new score minus the recorded one."""
        return self.now - self.was


@dataclass(slots=True, kw_only=True, frozen=True)
class ScoreComparison:
    """Agreement between two scores of the same episodes."""

    episodes: int
    was: float
    now: float
    """Mean new score; `was` is the recorded mean."""
    low: float
    high: float
    """Upper bound of the mean difference's 95% bootstrap interval; `low` is the lower bound."""
    correlation: float | None
    """Spearman's rank correlation; None if one of the scores is constant."""
    swapped: float | None
    """Share of pairs of group members whose order reversed; None if no pair's scores differed."""


def chat_format_of(run: Path) -> QueryFormat:
    """Return the chat format of a run's model; ChatML if its files are not on this machine."""
    file, start = run / "config.yaml", run / "start"
    if not file.is_file() or extras.missing_for_models("local")[0]:
        return CHATML
    model = configuration.load(file).model
    try:
        folder = start if start.is_dir() else local_folder(model)
        return open_encoder(model, folder).query_format if folder.is_dir() else CHATML
    except ConfigError as error:
        log.warning("reward functions receive prompts in ChatML format: %s", error)
        return CHATML


def rescore(
    recorded: Iterable[RecordedEpisode],
    rewards: Sequence[RewardConfig],
    form: QueryFormat = CHATML,
    with_images: Callable[[RecordedEpisode], RecordedEpisode] | None = None,
) -> list[RescoredEpisode]:
    """Score each valid episode again.

    Raises:
        ConfigError: a function does not exist, or needs a value that was not recorded.
        RewardError: a function fails on an episode.
    """
    valid = [episode for episode in recorded if not episode.summary.outcome.void]
    rescored = []
    with RewardFunctions(rewards, form=form) as scorer:
        load = with_images if with_images and scorer.reads_images else None
        episodes = (load(before).episode if load else before.episode for before in valid)
        for before, scored in zip(valid, scorer.score_all(episodes), strict=True):
            if isinstance(scored, RewardError):
                check_recorded(scored, before.episode, [one.episode for one in valid])
                raise RewardError(f"{before.summary.id}: {scored}") from scored
            sums = {name: float(sum(values)) for name, values in scored.components.items()}
            rescored.append(
                RescoredEpisode(
                    id=before.summary.id, group=before.summary.group, was=before.summary.reward,
                    now=scored.reward, components=sums,
                )
            )  # fmt: skip
    return rescored


def check_recorded(error: RewardError, failed: Episode, recorded: Sequence[Episode]) -> None:
    """Check whether a reward fails because of a value that was never recorded.

    Raises:
        ConfigError: the reward needs a value that was never recorded.
    """
    if isinstance(error.__cause__, MissingInfo):
        key = error.__cause__.key
    # Without a recorded ground truth, a batch function gets None and may fail on it.
    elif any(word in str(error) for word in ("ground_truth", "NoneType")):
        key = "ground_truth"
    else:
        return
    if _has(failed, key):
        return
    lacking = [before.id for before in recorded if not _has(before, key)]
    raise ConfigError(
        f"{error}. {len(lacking)} of {len(recorded)} episodes (the first is {lacking[0]}) were "
        f"recorded without {key!r} in their environment's info; select others (--split, --label, "
        "--step), or use a reward that does not need it"
    ) from error


def _has(episode: Episode, key: str) -> bool:
    """Return whether the info of the last turn or of the reset has this key."""
    return key in episode.reset_info or any(key in turn.info for turn in episode.turns[-1:])


def compare_scores(rescored: Sequence[RescoredEpisode]) -> ScoreComparison:
    """Measure the agreement between the recorded and the new scores.

    Raises:
        ValueError: there are no episodes.
    """
    if not rescored:
        raise ValueError("there are no episodes to compare")
    was = np.array([one.was for one in rescored])
    now = np.array([one.now for one in rescored])
    drawn = np.random.default_rng(0).integers(len(was), size=(_DRAWS, len(was)))
    # The bootstrap assumes nothing about the distribution of rewards.
    low, high = np.quantile((now - was)[drawn].mean(axis=1), (0.025, 0.975))
    return ScoreComparison(
        episodes=len(rescored),
        was=float(was.mean()),
        now=float(now.mean()),
        low=float(low),
        high=float(high),
        correlation=_correlation(was, now),
        swapped=_swapped(rescored),
    )


def _correlation(one: np.ndarray, other: np.ndarray) -> float | None:
    first, second = _ranks(one), _ranks(other)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Rank values; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: np.ndarray = (ends - (counts - 1) / 2)[inverse]
    return ranks


def _swapped(rescored: Sequence[RescoredEpisode]) -> float | None:
    groups: dict[str, list[RescoredEpisode]] = {}
    for one in rescored:
        groups.setdefault(one.group, []).append(one)
    pairs = swaps = 0
    for members in groups.values():
        for index, one in enumerate(members):
            for other in members[index + 1 :]:
                if one.was != other.was:
                    pairs += 1
                    swaps += (one.was - other.was) * (one.now - other.now) < 0
    return swaps / pairs if pairs else None
