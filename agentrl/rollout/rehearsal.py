"""Play recorded replies again: whether an environment still does what it did."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agentrl.config import Config
from agentrl.policies.recorded_policy import RecordedPolicy
from agentrl.replay import RecordedEpisode
from agentrl.replay.episode_encoding import to_plain
from agentrl.replay.frames.bands import cut_into_bands
from agentrl.replay.frames.mask import masked
from agentrl.rollout.env_pool import open_worlds
from agentrl.rollout.env_runner import World
from agentrl.rollout.episode import Limits, play
from agentrl.rollout.episode_request import Split, Ticket
from agentrl.types import Episode, Image, Turn


@dataclass(slots=True, kw_only=True, frozen=True)
class Rehearsal:
    """One episode that was played again."""

    id: str
    turn: int | None
    """From 1, the first that came out otherwise; 0 for the beginning; None where all is as it
    was."""
    what: str
    """What came out otherwise: `frames`, `words`, `state`, `info`, `reward`, `action`, `outcome` or
    `turns`; empty where all is as it was."""
    was: str = ""
    now: str = ""

    @property
    def same(self) -> bool:
        """Whether all came out as it was recorded."""
        return self.turn is None


def rehearse(
    config: Config,
    recorded: Sequence[RecordedEpisode],
    done: Callable[[Rehearsal], None] = lambda rehearsal: None,
) -> list[Rehearsal]:
    """Reset each episode's environment with its seed, and say again what was said.

    Args:
        config: of the run; its phones are opened.
        recorded: episodes that are not void.
        done: told of each as it ends.

    Returns:
        One for each episode, in order.

    Raises:
        ConfigError: a phone cannot be reached, or the environment cannot be made.
        WorldError: nothing could be played.
    """
    return asyncio.run(_rehearse(config, recorded, done))


async def _rehearse(
    config: Config, recorded: Sequence[RecordedEpisode], done: Callable[[Rehearsal], None]
) -> list[Rehearsal]:
    def keep(image: Image) -> str:
        return cut_into_bands(masked(image, config.devices.mask)).id

    worlds = open_worlds(config, keep if config.run.frames == "device" else None, (0, 1))
    seats = asyncio.Semaphore(worlds.count)

    async def one(before: RecordedEpisode) -> Rehearsal:
        async with seats:
            found = compared(before.episode, await _again(config, before, worlds.visit))
        done(found)
        return found

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(episode)) for episode in recorded]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        worlds.close()
    return [task.result() for task in tasks]


async def _again(
    config: Config,
    before: RecordedEpisode,
    visit: Callable[[Callable[[World], Awaitable[Episode]], Split], Awaitable[Episode]],
) -> Episode:
    summary, turns = before.summary, before.episode.turns
    split = cast(Split, summary.split)
    ticket = Ticket(
        split=split, step=summary.step, group=0, member=summary.member, seed=summary.seed,
        label="rehearsal",
    )  # fmt: skip
    policy = RecordedPolicy([turn.reply for turn in turns])
    limits = Limits(max_turns=len(turns), deadline_s=config.rollout.deadline_s)

    def act(world: World) -> Awaitable[Episode]:
        return play(ticket, config.env.id, world, policy, 0, limits)

    return await visit(act, split)


def compared(before: Episode, after: Episode) -> Rehearsal:
    """Where two plays of the same replies part."""

    def parts(turn: int, what: str, was: Any, now: Any) -> Rehearsal:
        return Rehearsal(id=before.id, turn=turn, what=what, was=_told(was), now=_told(now))

    if after.error is not None:
        return parts(len(after.turns) + 1, "outcome", before.outcome.value, after.error)
    if (key := _differs(before.reset_info, after.reset_info)) is not None:
        return parts(0, f"info[{key!r}]", before.reset_info.get(key), after.reset_info.get(key))
    for number, (was, now) in enumerate(zip(before.turns, after.turns, strict=False), 1):
        for what, one, other in _of_turn(was, now):
            if one != other:
                return parts(number, what, one, other)
        if (key := _differs(was.info, now.info)) is not None:
            return parts(number, f"info[{key!r}]", was.info.get(key), now.info.get(key))
    if len(before.turns) != len(after.turns):
        return parts(len(after.turns), "turns", len(before.turns), len(after.turns))
    shown = before.final_frames and after.final_frames
    if shown and before.final_frames != after.final_frames:
        return parts(len(after.turns), "frames", before.final_frames, after.final_frames)
    return Rehearsal(id=before.id, turn=None, what="")


def _of_turn(was: Turn, now: Turn) -> list[tuple[str, Any, Any]]:
    """What is recorded of a turn, in the order in which it came about."""
    seen: list[tuple[str, Any, Any]] = []
    if was.shown:  # format 1 recorded no words
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
    """The first entry of an info that came out otherwise; both must have it."""
    told = to_plain(now)
    return next((key for key in was if key in told and was[key] != told[key]), None)


def _told(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
