"""Play one episode: reset the environment, then observe, generate and act until the end."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from agentrl.errors import (
    ConfigError,
    DeviceError,
    EnvError,
    WorldError,
    boundary,
    message_of,
)
from agentrl.event_loop import own_deadline
from agentrl.policies.policy import Answer, Policy, PolicySession
from agentrl.rollout.environments.env_runner import ActionResult, EnvRunner, StepResult
from agentrl.runs.episode_summary import label_of
from agentrl.text.phone_names import phone_name, with_short_serials
from agentrl.types import Episode, Image, Message, Observation, Outcome, Split, TruncatedBy, Turn

log = logging.getLogger(__name__)

_GOLDEN_RATIO = 0x9E3779B97F4A7C15


@dataclass(slots=True, kw_only=True, frozen=True)
class EpisodeRequest:
    """One episode to play; a refill is the same request with the next attempt number."""

    split: Split
    step: int
    group: int
    member: int
    seed: int
    """Seed of the environment, shared by the members of a group."""
    env: str = ""
    """The environment's name in `mixture`, or a ring's (`eval.rings`); empty for the job's own."""
    attempt: int = 0
    label: str = ""
    """Distinguishes evaluations of the same step; part of the id."""
    opening_turns: int | None = None
    """Maximum number of turns of an episode that is neither scored nor recorded; None plays a whole
    episode."""

    @property
    def group_id(self) -> str:
        """Unique id of the group within the run."""
        return f"{label_of(self.label) or self.split}-{self.step:05d}-g{self.group:03d}"

    @property
    def id(self) -> str:
        """Unique id of the episode within the run."""
        retry = f"-r{self.attempt}" if self.attempt else ""
        return f"{self.group_id}-m{self.member:02d}{retry}"

    def player_seed(self, run_seed: int) -> int:
        """Return the player's random seed, which is the same for all evaluations of a step."""
        split = get_args(Split).index(self.split)
        parts = (run_seed, self.step, self.group, self.member, self.attempt, split)
        mixed = 0
        for part in parts:
            mixed = (mixed * 1_000_003 ^ (part + 1) * _GOLDEN_RATIO) & (2**63 - 1)
        return mixed


ENVIRONMENT = "environment"
"""Key of the reset's info that names the environment of a mixture, or the ring of an evaluation."""
NO_ROOM = (
    "rollout.max_context has no room for the first prompt and a reply of rollout.max_new_tokens; "
    "raise it, shorten the instructions, or lower model.max_pixels"
)


@dataclass(slots=True, kw_only=True, frozen=True)
class EpisodeLimits:
    """Limits of one episode."""

    max_turns: int
    deadline_s: float
    turn_limit: TruncatedBy = TruncatedBy.TURNS
    """The limit that `max_turns` stands for."""
    has_played: bool = False
    """Whether the environment has been played before. Its settings are then known to work, so a
    later failure, such as an observation that grew too long, does not end the job."""


@dataclass(slots=True, kw_only=True)
class _History:
    """The episode so far."""

    instructions: str
    """The first turn's system message."""
    preceding: tuple[Message, ...] = ()
    """Messages before the first turn, without images."""
    turns: list[Turn] = field(default_factory=list)
    reset_info: Mapping[str, Any] = field(default_factory=dict)
    last: StepResult | None = None
    truncated_by: TruncatedBy | None = None
    under_way: str = ""
    """Name of the call in progress, for messages."""
    answered: Observation | None = None
    """The last observation that the player replied to."""


async def run_episode(
    request: EpisodeRequest,
    env_id: str,
    runner: EnvRunner,
    policy: Policy,
    seed: int,
    limits: EpisodeLimits,
    save_model_frame: Callable[[Image], str] | None = None,
    on_turn: Callable[[Turn], None] | None = None,
    on_end: Callable[[Observation], None] | None = None,
) -> Episode:
    """Play one episode until it ends; a phone or environment failure becomes its outcome.

    With `save_model_frame`, images are stored as the model saw them, instead of full frames.
    `on_end` gets the final observation, unless the player has already replied to it.

    Raises:
        ConfigError: a setting does not work with the environment.
    """
    history = _History(instructions=runner.instructions)
    session = policy.start_episode(runner.instructions, seed)
    error: str | None = None
    failure: WorldError | None = None
    try:
        async with own_deadline(limits.deadline_s):
            outcome = await _play_turns(
                request, runner, session, limits, history, save_model_frame, on_turn
            )
    except TimeoutError:
        outcome = Outcome.TIMEOUT
        error = (
            f"not finished within {limits.deadline_s:g} s (rollout.deadline_s), while waiting for "
            f"{history.under_way} in turn {len(history.turns) + 1}"
        )
    except ConfigError as mistake:
        if not (limits.has_played or history.turns):
            raise
        failure = EnvError(message_of(mistake))
        failure.__cause__ = mistake
    except WorldError as raised:
        failure = raised
    finally:
        session.close()
    if failure is not None:
        is_phone = isinstance(failure, DeviceError)
        outcome = Outcome.DEVICE_ERROR if is_phone else Outcome.ENV_ERROR
        error = f"{type(failure).__name__}: {message_of(failure)}"
        log.debug("%s: %s", request.id, error, exc_info=failure)
        # Tracebacks would keep the episode's stack frames, and so its images, in memory.
        failure.__traceback__ = failure.__cause__ = failure.__context__ = None
    last = history.last
    if on_end is not None and last is not None and last.observation is not history.answered:
        on_end(last.observation)
    return _episode(request, env_id, runner, history, outcome, error, failure)


def _episode(
    request: EpisodeRequest,
    env_id: str,
    runner: EnvRunner,
    history: _History,
    outcome: Outcome,
    error: str | None,
    failure: WorldError | None,
) -> Episode:
    last, serials = history.last, [runner.device] if runner.device else []
    return Episode(
        id=request.id,
        env_id=env_id,
        seed=request.seed,
        group=request.group_id,
        member=request.member,
        reset_info={**history.reset_info, **({ENVIRONMENT: request.env} if request.env else {})},
        instructions=history.instructions,
        turns=tuple(history.turns),
        final_shown="" if last is None or last.hidden else last.observation.text,
        final_frames=() if last is None else last.frames,
        outcome=outcome,
        error=error and with_short_serials(error, serials),
        failure=failure,
        truncated_by=history.truncated_by if outcome is Outcome.TRUNCATED else None,
        device=phone_name(runner.device, runner.host) if runner.device else None,
        final_images=() if last is None or last.hidden else last.observation.images,
        preceding=history.preceding,
    )


async def _play_turns(
    request: EpisodeRequest,
    runner: EnvRunner,
    session: PolicySession,
    limits: EpisodeLimits,
    history: _History,
    save_model_frame: Callable[[Image], str] | None,
    on_turn: Callable[[Turn], None] | None,
) -> Outcome:
    history.under_way = f"{runner.id}.reset(seed={request.seed})"
    step = await runner.reset(request.seed)
    history.reset_info = step.info
    history.last = step
    while len(history.turns) < limits.max_turns:
        started = time.perf_counter()
        history.under_way = "the translator's message"
        message = await runner.message(step.observation)
        history.answered = step.observation
        shows = message.images
        # Only the first message includes earlier messages' images, or may have a system message.
        if not history.turns:
            shows = message.all_images
            if not step.hidden:
                history.preceding = tuple(replace(one, images=()) for one in message.preceding)
            if message.system is not None:
                history.instructions = message.system
        history.under_way = "the player's answer"
        with boundary(EnvError, "the player's answer"):
            answer = await session.answer(message, step.info, step.env_observation)
        if answer is None:
            if not history.turns:
                raise ConfigError(NO_ROOM)
            history.truncated_by = TruncatedBy.CONTEXT
            return Outcome.TRUNCATED
        generated = time.perf_counter()
        # This turn's images are the last in the prompt.
        if save_model_frame and not step.hidden:
            new = answer.prompt.images[len(answer.prompt.images) - len(shows) :]
            step = _without_step(step, tuple(map(save_model_frame, new)))
        history.under_way = f"{runner.id}.step()"
        is_last = len(history.turns) + 1 >= limits.max_turns
        result = await runner.act(answer.text, is_last=is_last)
        # A repeated message follows earlier turns, so leave out frames from before the episode.
        repeated = step.frames[len(shows) - len(message.images) :]
        after = result.after or _without_step(step, repeated)
        durations = {"generate": generated - started, "act": time.perf_counter() - generated}
        timings = {**after.timings, **durations}
        history.turns.append(_turn(message, answer, result, step, after, timings))
        history.last = after
        if on_turn is not None:
            on_turn(history.turns[-1])
        if after.terminated:
            return Outcome.TERMINATED
        if after.truncated:
            history.truncated_by = TruncatedBy.ENVIRONMENT
            return Outcome.TRUNCATED
        step = after
    history.truncated_by = limits.turn_limit
    return Outcome.TRUNCATED


def _without_step(step: StepResult, frames: tuple[str, ...]) -> StepResult:
    """Return the same state as if no step was taken: without reward, and not ended."""
    return StepResult(
        observation=step.observation,
        info=step.info,
        frames=frames,
        hidden=step.hidden,
        env_observation=step.env_observation,
    )


def _turn(
    message: Message,
    answer: Answer,
    result: ActionResult,
    before: StepResult,
    after: StepResult,
    timings: Mapping[str, float],
) -> Turn:
    reply = answer.reply
    return Turn(
        prompt_ids=answer.prompt.token_ids,
        reply_ids=reply.token_ids,
        reply_logprobs=reply.logprobs,
        reply_versions=reply.token_versions,
        reply_top_logprobs=reply.top_logprobs,
        reply=answer.text,
        images=answer.prompt.images,
        shown="" if before.hidden else message.text,
        frames=before.frames,
        action=result.action,
        chunk=result.chunk,
        parse_error=result.unreadable,
        env_reward=after.reward,
        state_key=before.info.get("state_key"),
        info=after.info,
        timings=timings,
        reply_truncated=answer.is_truncated,
        guide=answer.guide,
    )
