"""Score recorded episodes by other reward functions than they were played for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl.config import RewardConfig
from agentrl.data.reward_inputs import NotTold
from agentrl.errors import ConfigError, RewardError
from agentrl.replay import RecordedEpisode
from agentrl.rollout.scoring import Scorer
from agentrl.types import Episode, ScoredEpisode

_DRAWS = 2000


@dataclass(slots=True, kw_only=True, frozen=True)
class Rescored:
    """One episode, as it was scored and as it is scored now."""

    id: str
    group: str
    was: float
    now: float
    components: dict[str, float]
    """Of the new score, summed over the turns, unweighted."""

    @property
    def difference(self) -> float:
        """What it gains."""
        return self.now - self.was


@dataclass(slots=True, kw_only=True, frozen=True)
class Comparison:
    """Two scores of the same episodes."""

    episodes: int
    was: float
    now: float
    """Means."""
    low: float
    high: float
    """The 95% bootstrap interval of the mean difference."""
    correlation: float | None
    """Of ranks (Spearman); None where one of the two is the same for all."""
    swapped: float | None
    """Share of the pairs of siblings of whom the other one is now the better; None without
    siblings that differed."""


def rescore(recorded: Iterable[RecordedEpisode], rewards: Sequence[RewardConfig]) -> list[Rescored]:
    """Score each episode anew; void ones are left out.

    Args:
        recorded: episodes; their pictures are not there.
        rewards: the functions.

    Raises:
        ConfigError: a function does not exist, or needs what the environment's info does not say.
        RewardError: it fails at an episode.
    """
    scorer = Scorer(rewards)
    valid = [one for one in recorded if not one.summary.outcome.void]
    found = []
    for one in valid:
        try:
            found.append(_rescored(one, scorer.score(one.episode)))
        except RewardError as error:
            _refuse_untold(error, one.episode, valid)
            raise RewardError(f"{one.summary.id}: {error}") from error
    return found


def _refuse_untold(
    error: RewardError, failed: Episode, recorded: Sequence[RecordedEpisode]
) -> None:
    """Say what was never recorded, where that is why a reward fails.

    Raises:
        ConfigError: it is.
    """
    key = _needed(error)
    if key is None or _tells(failed, key):
        return
    lacking = [one.summary.id for one in recorded if not _tells(one.episode, key)]
    raise ConfigError(
        f"{error}. {len(lacking)} of the {len(recorded)} episodes were recorded without {key!r} in "
        f"their environment's info, the first of them {lacking[0]}: choose others (--split, "
        "--label, --step), or a reward that needs none"
    ) from error


def _needed(error: RewardError) -> str | None:
    """What of an info a reward asks for that fails like this; None where it is nothing of it."""
    if isinstance(error.__cause__, NotTold):
        return error.__cause__.key
    # A batch function is given None where there is no truth, and stumbles over that.
    stumbles = any(word in str(error) for word in ("ground_truth", "NoneType"))
    return "ground_truth" if stumbles else None


def _tells(episode: Episode, key: str) -> bool:
    """Whether a reward finds this in the info of the last turn or of the first observation."""
    return key in episode.reset_info or any(key in turn.info for turn in episode.turns[-1:])


def _rescored(before: RecordedEpisode, after: ScoredEpisode) -> Rescored:
    return Rescored(
        id=before.summary.id,
        group=before.summary.group,
        was=before.summary.total,
        now=after.total,
        components={name: float(sum(values)) for name, values in after.components.items()},
    )


def compare(rescored: Sequence[Rescored], seed: int = 0) -> Comparison:
    """How far the two scores agree.

    Raises:
        ValueError: there is no episode.
    """
    if not rescored:
        raise ValueError("there is no episode to compare")
    was = np.array([one.was for one in rescored])
    now = np.array([one.now for one in rescored])
    drawn = np.random.default_rng(seed).integers(len(was), size=(_DRAWS, len(was)))
    low, high = np.quantile((now - was)[drawn].mean(axis=1), (0.025, 0.975))
    return Comparison(
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
    """Mean ranks: equal values share theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: np.ndarray = (ends - (counts - 1) / 2)[inverse]
    return ranks


def _swapped(rescored: Sequence[Rescored]) -> float | None:
    groups: dict[str, list[Rescored]] = {}
    for one in rescored:
        groups.setdefault(one.group, []).append(one)
    pairs = swaps = 0
    for members in groups.values():
        for place, one in enumerate(members):
            for other in members[place + 1 :]:
                if one.was != other.was:
                    pairs += 1
                    swaps += (one.was - other.was) * (one.now - other.now) < 0
    return swaps / pairs if pairs else None
