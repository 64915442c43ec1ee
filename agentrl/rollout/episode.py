"""Play one episode: reset, look, answer, act, until it ends."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrl.errors import (
    ConfigError,
    DeviceError,
    EnvError,
    WorldError,
    boundary,
)
from agentrl.policies.policy import Answer, Policy, Seat
from agentrl.rollout.env_runner import Move, Sight, World
from agentrl.rollout.episode_request import Ticket
from agentrl.text import short_serial, with_short_serials
from agentrl.types import Episode, Image, Message, Observation, Outcome, Turn

log = logging.getLogger(__name__)

_NO_ROOM = (
    "rollout.max_context cannot hold the first prompt and rollout.max_new_tokens of reply: "
    "raise it, shorten the instructions, or lower model.max_pixels"
)


@dataclass(slots=True, kw_only=True, frozen=True)
class Limits:
    """How far an episode may go."""

    max_turns: int
    deadline_s: float


@dataclass(slots=True, kw_only=True)
class _Diary:
    """What has happened so far in one episode."""

    turns: list[Turn] = field(default_factory=list)
    reset_info: Mapping[str, Any] = field(default_factory=dict)
    last: Sight | None = None
    answered: Observation | None = None
    """What the player was shown last."""


async def play(
    ticket: Ticket,
    env_id: str,
    world: World,
    policy: Policy,
    seed: int,
    limits: Limits,
    keep_model_frame: Callable[[Image], str] | None = None,
    on_turn: Callable[[Turn], None] | None = None,
    on_end: Callable[[Observation], None] | None = None,
) -> Episode:
    """Play one episode to its end, whatever that is; never raises for a failure of the world.

    Args:
        ticket: which episode.
        env_id: of the environment, for the record.
        world: where it is played.
        policy: who plays.
        seed: of the player's own draws.
        limits: turns and seconds.
        keep_model_frame: stores the pictures as the model saw them, instead of full frames.
        on_turn: told of each turn as it ends.
        on_end: told of what is seen at the end, where the player was not shown it.

    Returns:
        The episode; `outcome` and `error` say how it ended.
    """
    diary = _Diary()
    seat = policy.sit(world.instructions, seed)
    error = None
    try:
        async with asyncio.timeout(limits.deadline_s):
            outcome = await _turns(ticket, world, seat, limits, diary, keep_model_frame, on_turn)
    except TimeoutError:
        outcome, error = Outcome.TIMEOUT, f"no end within {limits.deadline_s:g} s"
    except DeviceError as failure:
        outcome, error = Outcome.DEVICE_ERROR, f"{type(failure).__name__}: {failure}"
    except WorldError as failure:
        outcome, error = Outcome.ENV_ERROR, f"{type(failure).__name__}: {failure}"
    finally:
        seat.leave()
    if error:
        error = with_short_serials(error, [world.device] if world.device else [])
        log.warning("%s is void after %d turns: %s", ticket.id, len(diary.turns), error)
    last = diary.last
    if on_end is not None and last is not None and last.observation is not diary.answered:
        on_end(last.observation)
    return Episode(
        id=ticket.id,
        env_id=env_id,
        seed=ticket.seed,
        group=ticket.group_id,
        member=ticket.member,
        reset_info=diary.reset_info,
        instructions=world.instructions,
        turns=tuple(diary.turns),
        final_shown="" if last is None or last.hidden else last.observation.text,
        final_frames=() if last is None else last.frames,
        outcome=outcome,
        error=error,
        device=short_serial(world.device) if world.device else None,
    )


async def _turns(
    ticket: Ticket,
    world: World,
    seat: Seat,
    limits: Limits,
    diary: _Diary,
    keep_model_frame: Callable[[Image], str] | None,
    on_turn: Callable[[Turn], None] | None,
) -> Outcome:
    sight = await world.reset(ticket.seed)
    diary.reset_info = sight.info
    diary.last = sight
    while len(diary.turns) < limits.max_turns:
        started = time.perf_counter()
        message = await world.message(sight.observation)
        diary.answered = sight.observation
        with boundary(EnvError, "the player's answer"):
            answer = await seat.answer(message, sight.info)
        if answer is None:
            if not diary.turns:
                raise ConfigError(_NO_ROOM)
            return Outcome.TRUNCATED
        generated = time.perf_counter()
        if keep_model_frame and not sight.hidden:
            new = answer.prompt.images[len(answer.prompt.images) - len(sight.observation.images) :]
            sight = _still(sight, tuple(map(keep_model_frame, new)))
        move = await world.act(answer.text)
        after = move.after or _still(sight, sight.frames)
        took = {"generate": generated - started, "act": time.perf_counter() - generated}
        timings = {**after.timings, **took}
        diary.turns.append(_turn(message, answer, move, sight, after, timings))
        diary.last = after
        if on_turn is not None:
            on_turn(diary.turns[-1])
        if after.terminated:
            return Outcome.TERMINATED
        if after.truncated:
            return Outcome.TRUNCATED
        sight = after
    return Outcome.TRUNCATED


def _still(sight: Sight, frames: tuple[str, ...]) -> Sight:
    """The same sight, at which nothing has happened: no reward, no end."""
    return Sight(observation=sight.observation, info=sight.info, frames=frames, hidden=sight.hidden)


def _turn(
    message: Message,
    answer: Answer,
    move: Move,
    before: Sight,
    after: Sight,
    timings: Mapping[str, float],
) -> Turn:
    reply = answer.reply
    return Turn(
        prompt_ids=answer.prompt.token_ids,
        reply_ids=reply.token_ids,
        reply_logprobs=reply.logprobs,
        reply_versions=(reply.version,) * len(reply.token_ids),
        reply=answer.text,
        images=answer.prompt.images,
        shown="" if before.hidden else message.text,
        frames=before.frames,
        action=None if move.unreadable else move.action,
        parse_error=move.unreadable,
        env_reward=after.reward,
        state_key=before.info.get("state_key"),
        info=after.info,
        timings=timings,
    )
