"""Score recorded episodes with different rewards (rescore), or replay them (rehearse)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from agentrl import config as configuration
from agentrl import extras
from agentrl.config import RewardConfig
from agentrl.data.reward_inputs import CHATML, MissingInfo, QueryFormat
from agentrl.errors import ConfigError, RewardError
from agentrl.policies.open_encoder import open_encoder
from agentrl.policies.scripted_policy import ScriptedPolicy
from agentrl.replay import RecordedEpisode
from agentrl.replay.episode_encoding import to_plain
from agentrl.replay.frames.banded_png import cut_into_bands
from agentrl.replay.recorder import masked
from agentrl.rollout.env_pool import open_env_pool
from agentrl.rollout.environments.env_runner import EnvRunner
from agentrl.rollout.rewards.scoring import RewardFunctions
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.rollout.run_episode import EpisodeLimits, EpisodeRequest, run_episode
from agentrl.types import Episode, Image, Split, Turn

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
    folder = start if start.is_dir() else Path(model.path)
    try:
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


@dataclass(slots=True, kw_only=True, frozen=True)
class Rehearsal:
    """Result of a replay: its first difference from the recorded episode."""

    id: str
    turn: int | None
    """The first turn that differs, from 1; 0 for the reset; None if the episodes are equal."""
    what: str
    """Kind of difference: `frames`, `words`, `state`, `info`, `reward`, `action`, `outcome` or
    `turns`; empty if the episodes are equal."""
    was: str = ""
    now: str = ""

    @property
    def same(self) -> bool:
        """Whether the replay equals the recording."""
        return self.turn is None


async def rehearse(plan: RolloutPlan, recorded: Sequence[RecordedEpisode]) -> list[Rehearsal]:
    """Reset each episode's environment with its seed, and repeat the recorded replies.

    Returns:
        One rehearsal per episode, in order.

    Raises:
        ConfigError: a phone cannot be reached, or the environment cannot be created.
        WorldError: no phone is left.
    """

    def keep(image: Image) -> str:
        return cut_into_bands(masked(image, plan.settings.devices.mask)).id

    # Phones on other hosts cannot be reached from here.
    devices = replace(plan.settings.devices, hosts={})
    plan = replace(plan, settings=replace(plan.settings, devices=devices))
    env_pool = open_env_pool(plan, keep if plan.settings.run.frames == "device" else None, (0, 1))
    slots = asyncio.Semaphore(env_pool.count)

    async def rehearse_one(before: RecordedEpisode) -> Rehearsal:
        summary, turns = before.summary, before.episode.turns
        split = cast(Split, summary.split)
        request = EpisodeRequest(
            split=split, step=summary.step, group=0, member=summary.member, seed=summary.seed,
            label="rehearsal",
        )  # fmt: skip
        policy = ScriptedPolicy(_RecordedPlayer([turn.reply for turn in turns]))
        limits = EpisodeLimits(max_turns=len(turns), deadline_s=plan.settings.rollout.deadline_s)

        def act(runner: EnvRunner) -> Awaitable[Episode]:
            return run_episode(request, plan.tasks[""].train.id, runner, policy, 0, limits)

        async with slots:
            return first_difference(before.episode, await env_pool.run_in_env(act, split))

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(rehearse_one(episode)) for episode in recorded]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        env_pool.close()
    return [task.result() for task in tasks]


class _RecordedPlayer:
    """Player that replays the recorded replies, one per turn."""

    def __init__(self, replies: Sequence[str]) -> None:
        self._replies = iter(replies)

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        return next(self._replies)


def first_difference(before: Episode, after: Episode) -> Rehearsal:
    """Return the first difference between two episodes with the same replies."""

    def differs(turn: int, what: str, was: Any, now: Any) -> Rehearsal:
        return Rehearsal(
            id=before.id, turn=turn, what=what, was=_shortened(was), now=_shortened(now)
        )

    if after.error is not None:
        return differs(len(after.turns) + 1, "outcome", before.outcome.value, after.error)
    if (key := _differs(before.reset_info, after.reset_info)) is not None:
        return differs(0, f"info[{key!r}]", before.reset_info.get(key), after.reset_info.get(key))
    for number, (was, now) in enumerate(zip(before.turns, after.turns, strict=False), 1):
        for what, old, new in _turn_values(was, now):
            if old != new:
                return differs(number, what, old, new)
        if (key := _differs(was.info, now.info)) is not None:
            return differs(number, f"info[{key!r}]", was.info.get(key), now.info.get(key))
    if len(before.turns) != len(after.turns):
        return differs(len(after.turns), "turns", len(before.turns), len(after.turns))
    shown = before.final_frames and after.final_frames
    if shown and before.final_frames != after.final_frames:
        return differs(len(after.turns), "frames", before.final_frames, after.final_frames)
    return Rehearsal(id=before.id, turn=None, what="")


def _turn_values(was: Turn, now: Turn) -> list[tuple[str, Any, Any]]:
    """Return the recorded and replayed values of a turn, in the order they arise."""
    seen: list[tuple[str, Any, Any]] = []
    # The text of a private screen is not recorded.
    if was.shown:
        seen.append(("words", was.shown, now.shown))
    if was.frames and now.frames:
        seen.append(("frames", was.frames, now.frames))
    return [
        ("state", was.state_key, now.state_key),
        *seen,
        ("action", was.action, to_plain(now.action)),
        ("reward", was.env_reward, now.env_reward),
    ]


def _differs(was: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return the first key in both infos whose values differ, or None."""
    after = to_plain(now)
    return next((key for key in was if key in after and was[key] != after[key]), None)


def _shortened(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
