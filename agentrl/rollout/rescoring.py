"""Score recorded episodes with other reward functions, and compare the scores."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl.config import RewardConfig
from agentrl.data.reward_inputs import MissingInfo
from agentrl.errors import ConfigError, RewardError
from agentrl.replay import RecordedEpisode
from agentrl.rollout.scoring import RewardFunctions
from agentrl.types import Episode, ScoredEpisode

_DRAWS = 2000


@dataclass(slots=True, kw_only=True, frozen=True)
class RescoredEpisode:
    """The recorded and the new score of one episode."""

    id: str
    group: str
    was: float
    now: float
    components: dict[str, float]
    """Components of the new score, summed over the turns, unweighted."""

    @property
    def difference(self) -> float:
        """The new score minus the recorded one."""
        return self.now - self.was


@dataclass(slots=True, kw_only=True, frozen=True)
class ScoreComparison:
    """Agreement of two scores over the same episodes."""

    episodes: int
    was: float
    now: float
    """Mean scores."""
    low: float
    high: float
    """The 95% bootstrap interval of the mean difference."""
    correlation: float | None
    """Spearman's rank correlation; None if one of the scores is constant."""
    swapped: float | None
    """Share of pairs of siblings whose order is reversed; None without siblings that differed."""


def rescore(
    recorded: Iterable[RecordedEpisode], rewards: Sequence[RewardConfig]
) -> list[RescoredEpisode]:
    """Score each episode again, except void ones.

    Args:
        recorded: episodes, without their images.
        rewards: the reward functions.

    Raises:
        ConfigError: a function does not exist, or needs a value that was not recorded.
        RewardError: a function fails for an episode.
    """
    scorer = RewardFunctions(rewards)
    valid = [episode for episode in recorded if not episode.summary.outcome.void]
    rescored = []
    for before in valid:
        try:
            rescored.append(_rescored(before, scorer.score(before.episode)))
        except RewardError as error:
            _check_recorded(error, before.episode, valid)
            raise RewardError(f"{before.summary.id}: {error}") from error
    return rescored


def _check_recorded(
    error: RewardError, failed: Episode, recorded: Sequence[RecordedEpisode]
) -> None:
    """Check whether a reward fails because of a value that was never recorded.

    Raises:
        ConfigError: it does.
    """
    key = _missing_key(error)
    if key is None or _has(failed, key):
        return
    lacking = [before.summary.id for before in recorded if not _has(before.episode, key)]
    raise ConfigError(
        f"{error}. {len(lacking)} of {len(recorded)} episodes were recorded without {key!r} in "
        f"their environment's info, the first is {lacking[0]}: select others (--split, --label, "
        "--step), or use a reward that does not need it"
    ) from error


def _missing_key(error: RewardError) -> str | None:
    """The key of info whose absence explains the error; None if it has another reason."""
    if isinstance(error.__cause__, MissingInfo):
        return error.__cause__.key
    # Without a recorded ground truth, a batch function is given None and may fail on it.
    is_truth = any(word in str(error) for word in ("ground_truth", "NoneType"))
    return "ground_truth" if is_truth else None


def _has(episode: Episode, key: str) -> bool:
    """Whether the info of the last turn or of the reset has this key."""
    return key in episode.reset_info or any(key in turn.info for turn in episode.turns[-1:])


def _rescored(before: RecordedEpisode, after: ScoredEpisode) -> RescoredEpisode:
    return RescoredEpisode(
        id=before.summary.id,
        group=before.summary.group,
        was=before.summary.total,
        now=after.total,
        components={name: float(sum(values)) for name, values in after.components.items()},
    )


def compare_scores(rescored: Sequence[RescoredEpisode], seed: int = 0) -> ScoreComparison:
    """Measure the agreement of the recorded and the new scores.

    Raises:
        ValueError: there are no episodes.
    """
    if not rescored:
        raise ValueError("there are no episodes to compare")
    was = np.array([one.was for one in rescored])
    now = np.array([one.now for one in rescored])
    drawn = np.random.default_rng(seed).integers(len(was), size=(_DRAWS, len(was)))
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
    """Ranks of values; equal values have their mean rank."""
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
