"""Replay recorded replies to check that an environment still behaves as it did."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agentrl.config import Config
from agentrl.policies.recorded_policy import RecordedPolicy
from agentrl.replay import RecordedEpisode
from agentrl.replay.episode_encoding import to_plain
from agentrl.replay.frames.banded_png import cut_into_bands
from agentrl.replay.recorder import masked
from agentrl.rollout.env_pool import open_env_pool
from agentrl.rollout.env_runner import EnvRunner
from agentrl.rollout.episode import EpisodeLimits, run_episode
from agentrl.rollout.episode_request import EpisodeRequest, Split
from agentrl.types import Episode, Image, Turn


@dataclass(slots=True, kw_only=True, frozen=True)
class Rehearsal:
    """The first difference between an episode and its replay."""

    id: str
    turn: int | None
    """The first turn that differs, from 1; 0 for the reset; None if the episodes are equal."""
    what: str
    """What differs: `frames`, `words`, `state`, `info`, `reward`, `action`, `outcome` or `turns`;
    empty if the episodes are equal."""
    was: str = ""
    now: str = ""

    @property
    def same(self) -> bool:
        """Whether the replay equals the recording."""
        return self.turn is None


async def rehearse(config: Config, recorded: Sequence[RecordedEpisode]) -> list[Rehearsal]:
    """Reset each episode's environment with its seed, and repeat the recorded replies.

    Args:
        config: of the run; its phones are opened.
        recorded: episodes that are not void.

    Returns:
        One for each episode, in order.

    Raises:
        ConfigError: a phone cannot be reached, or the environment cannot be made.
        WorldError: no phone is left.
    """

    def keep(image: Image) -> str:
        return cut_into_bands(masked(image, config.devices.mask)).id

    env_pool = open_env_pool(config, keep if config.run.frames == "device" else None, (0, 1))
    slots = asyncio.Semaphore(env_pool.count)

    async def rehearse_one(before: RecordedEpisode) -> Rehearsal:
        async with slots:
            after = await _replayed(
                before, config.env.id, config.rollout.deadline_s, env_pool.run_in_env
            )
            return first_difference(before.episode, after)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(rehearse_one(episode)) for episode in recorded]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        env_pool.close()
    return [task.result() for task in tasks]


async def _replayed(
    before: RecordedEpisode,
    env_id: str,
    deadline_s: float,
    run_in_env: Callable[[Callable[[EnvRunner], Awaitable[Episode]], Split], Awaitable[Episode]],
) -> Episode:
    summary, turns = before.summary, before.episode.turns
    split = cast(Split, summary.split)
    request = EpisodeRequest(
        split=split, step=summary.step, group=0, member=summary.member, seed=summary.seed,
        label="rehearsal",
    )  # fmt: skip
    policy = RecordedPolicy([turn.reply for turn in turns])
    limits = EpisodeLimits(max_turns=len(turns), deadline_s=deadline_s)

    def act(runner: EnvRunner) -> Awaitable[Episode]:
        return run_episode(request, env_id, runner, policy, 0, limits)

    return await run_in_env(act, split)


def first_difference(before: Episode, after: Episode) -> Rehearsal:
    """The first difference between two episodes with the same replies."""

    def differs(turn: int, what: str, was: Any, now: Any) -> Rehearsal:
        return Rehearsal(
            id=before.id, turn=turn, what=what, was=_shortened(was), now=_shortened(now)
        )

    if after.error is not None:
        return differs(len(after.turns) + 1, "outcome", before.outcome.value, after.error)
    if (key := _differs(before.reset_info, after.reset_info)) is not None:
        return differs(0, f"info[{key!r}]", before.reset_info.get(key), after.reset_info.get(key))
    for number, (was, now) in enumerate(zip(before.turns, after.turns, strict=False), 1):
        for what, old, new in _of_turn(was, now):
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


def _of_turn(was: Turn, now: Turn) -> list[tuple[str, Any, Any]]:
    """The recorded values of a turn, in the order in which they arise."""
    seen: list[tuple[str, Any, Any]] = []
    if was.shown:  # format 1 did not record texts
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
    """The first key of two infos whose values differ; keys that one of them lacks are ignored."""
    after = to_plain(now)
    return next((key for key in was if key in after and was[key] != after[key]), None)


def _shortened(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
