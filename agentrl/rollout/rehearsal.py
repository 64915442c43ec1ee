"""Replay recorded episodes and find the first difference."""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from agentrl.policies.scripted_policy import ScriptedPolicy
from agentrl.replay import RecordedEpisode
from agentrl.replay.frames.banded_png import cut_into_bands
from agentrl.replay.plain_json import to_plain
from agentrl.replay.recorder import masked
from agentrl.rollout.env_pool import open_env_pool
from agentrl.rollout.environments.env_runner import EnvRunner
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.rollout.run_episode import EpisodeLimits, EpisodeRequest, run_episode
from agentrl.runs.rings import ring_of
from agentrl.types import Episode, Image, Split, Turn


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
        split, ring = cast(Split, summary.split), ring_of(summary.label)
        # A ring that the overrides leave out is the job's own environment.
        name = ring if ring in plan.rings else ""
        request = EpisodeRequest(
            split=split, step=summary.step, group=0, member=summary.member, seed=summary.seed,
            label="rehearsal",
        )  # fmt: skip
        policy = ScriptedPolicy(_RecordedPlayer([turn.reply for turn in turns]))
        limits = EpisodeLimits(max_turns=len(turns), deadline_s=plan.settings.rollout.deadline_s)

        def act(runner: EnvRunner) -> Awaitable[Episode]:
            return run_episode(request, plan.tasks[""].train.id, runner, policy, 0, limits)

        async with slots:
            return first_difference(before.episode, await env_pool.run_in_env(act, split, name))

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
        *_chunk_values(was, now),
    ]


def _chunk_values(was: Turn, now: Turn) -> Iterator[tuple[str, Any, Any]]:
    """Yield the values after each action of a turn with several."""
    for number, (old, new) in enumerate(zip(was.chunk, now.chunk, strict=False), 1):
        yield f"reward of action {number}", old.reward, new.reward
        if (key := _differs(old.info, new.info)) is not None:
            yield f"info[{key!r}] after action {number}", old.info.get(key), new.info.get(key)
        if old.shown:
            yield f"words after action {number}", old.shown, new.shown
        if old.frames and new.frames:
            yield f"frames after action {number}", old.frames, new.frames


def _differs(was: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return the first key in both infos whose values differ, or None."""
    after = to_plain(now)
    return next((key for key in was if key in after and was[key] != after[key]), None)


def _shortened(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
