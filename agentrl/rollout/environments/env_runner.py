"""Run one environment and its translator in a thread, driven from an event loop.

Environments block, so each has its own thread. The episode's deadline bounds every call; an
environment that does not return in time is abandoned together with its thread.
"""

import contextlib
import faulthandler
import hashlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import PIL.Image

from agentrl.actions.action_chunks import parse_actions
from agentrl.actions.screen_actions import Done
from agentrl.actions.state_estimates import true_state
from agentrl.data.observation_conversion import is_within, observation_problem
from agentrl.errors import (
    ActionError,
    ConfigError,
    EnvError,
    boundary,
    describe_error,
    message_of,
)
from agentrl.rollout.environments.env_calls import reset_env, step_env
from agentrl.rollout.environments.load_translator_and_players import ResizeOf, open_translator
from agentrl.rollout.environments.prompt_messages import (
    compose_message,
    instructions_for,
    preceding_for,
)
from agentrl.rollout.environments.resolved_env import ResolvedEnv, close_env
from agentrl.rollout.environments.state_schemas import state_schema_of
from agentrl.rollout.user_code_guard import remember_streams, reopen_closed_streams
from agentrl.text.formatting import pluralize, quoted
from agentrl.types import ExecutedAction, Image, Message, Observation, finite
from agentrl.worker_thread import Worker

log = logging.getLogger(__name__)

T = TypeVar("T")
MakeEnv = Callable[..., Any]
"""Takes a render mode, and `device` if played on a phone; returns the environment."""


@dataclass(slots=True, kw_only=True, frozen=True)
class StepResult:
    """Result of a reset or a step."""

    observation: Observation
    """The observation as the model sees it."""
    info: Mapping[str, Any]
    frames: tuple[str, ...]
    env_observation: Any = None
    """The environment's original observation, for scripted players."""
    hidden: bool = False
    """Whether the screen must not be recorded."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Seconds spent in parts of the step, as reported by the environment."""
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False


@dataclass(slots=True, kw_only=True, frozen=True)
class ActionResult:
    """Effect of one reply."""

    action: Any
    """The executed action, or the list of executed actions if a reply may have several; None if
    the reply contains no valid action."""
    unreadable: str | None
    """Why the reply, or one of its actions, is invalid; None if it is valid."""
    after: StepResult | None
    """The result of the last step, with the rewards and timings of all steps; None if no action was
    taken."""
    chunk: tuple[ExecutedAction, ...] = ()
    """The executed actions if a reply may have several; see `Turn.chunk`."""


_BUILTIN = frozenset((bool, int, float, str, type(None)))


def to_builtin(value: Any) -> Any:
    """Convert numpy types to Python types, so that the value can be written as JSON."""
    # Most values are of these types: check them first, as this runs every turn.
    if type(value) in _BUILTIN:
        return value
    if isinstance(value, Mapping):
        return {str(k): to_builtin(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_builtin(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


def _check_info(info: Any) -> Mapping[str, Any]:
    """Convert an environment's info to plain values, and check the keys the framework reads.

    Raises:
        TypeError, ValueError: the info is not a dictionary, its metrics are not finite numbers, or
            its `state_key` is not a string.
    """
    if not isinstance(info, Mapping):
        raise TypeError(f"info is {type(info).__name__}, not a dictionary")
    checked: dict[str, Any] = to_builtin(info)
    if not isinstance(checked.get("state_key"), str | None):
        raise TypeError(f"info['state_key'] is {checked['state_key']!r:.80}, not a string or None")
    metrics = checked.get("metrics", {})
    if not isinstance(metrics, Mapping):
        raise TypeError(f"info['metrics'] is {metrics!r:.80}, not a dictionary of numbers")
    for name, value in metrics.items():
        if not name.isprintable():
            raise ValueError(f"info['metrics'] has the unprintable name {name!r}")
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"info['metrics'][{name!r}] is {value!r:.80}, not a finite number")
    return checked


def _state_key(observation: Observation, coarsen: Callable[[Image], Image] | None = None) -> str:
    """Return an observation's digest; with `coarsen`, similar images share a digest."""
    digest = hashlib.blake2b(observation.text.encode("utf-8", "replace"), digest_size=16)
    for image in observation.images:
        digest.update(str(image.shape).encode() + (coarsen(image) if coarsen else image).tobytes())
    return digest.hexdigest()


_STATUS_BAR = 0.05
"""Share of a screen's height taken by the status bar, whose clock and battery keep changing."""
_CELLS, _LEVELS = 64, 8
_MOST_TEXT = 1_000_000
"""Maximum length of an observation in characters: it fits no context and is slow to encode."""
_warned: set[str] = set()
"""Environments already reported for observations out of bounds."""


def coarse_screen(image: Image) -> Image:
    """Return a coarse grayscale version of a screen: 64 x 64 cells with 8 gray levels each.

    The result does not depend on the clock in the status bar or on a cursor, and rarely on
    compression noise (only in cells whose gray value lies at the edge of a level).

    Args:
        image: uint8[H, W, 3].

    Returns:
        uint8[64, 64].
    """
    content = PIL.Image.fromarray(image[int(_STATUS_BAR * len(image)) :]).convert("L")
    gray = content.resize((_CELLS, _CELLS), PIL.Image.Resampling.BOX)
    return np.asarray(gray) // (256 // _LEVELS)


class EnvRunner:
    """Runs one environment instance for many episodes.

    Args:
        env: the environment.
        save_frame: stores a full frame and returns its id; None stores none.
        device: serial of the environment's phone; None for an environment without a phone.
        host: the phone's host, if the job has phones on several hosts.
        lease: the lease token to pass to the environment as its `device`.
        make: creates the environment elsewhere; None creates it in this process.
        resize_of: see `open_translator`.
    """

    def __init__(
        self,
        env: ResolvedEnv,
        save_frame: Callable[[Image], str] | None,
        device: str | None = None,
        lease: str | None = None,
        make: MakeEnv | None = None,
        resize_of: ResizeOf | None = None,
        host: str | None = None,
    ) -> None:
        self.translator = open_translator(env, resize_of)
        self.instructions = instructions_for(env.settings, self.translator)
        self.id, self.device, self.host = env.id, device, host
        self._device_kwargs = {} if lease is None else {"device": lease}
        self._schema = state_schema_of(env.settings)
        self._make = make or env.make
        self._config = env.settings
        self._save_frame = save_frame
        self._env: Any = None
        self._turn = 0
        """Number of steps taken in this episode."""
        self._shown: Observation | None = None
        """The environment's last observation."""
        self._system: str | None = None
        """The episode's own system message, if it replaces the instructions."""
        self._preceding: tuple[Message, ...] = ()
        """Earlier messages of the conversation, before the first step's message."""
        self._composed: tuple[Observation, Message] | None = None
        """An observation and the message already composed for it, if any."""
        self._worker = Worker(f"runner-{device or 'env'}")

    async def reset(self, seed: int) -> StepResult:
        """Start an episode.

        Raises:
            DeviceError: the phone failed.
            EnvError: the environment raised an error.
        """
        return await self._worker.call(self._with_open_streams, self._reset, seed)

    async def act(self, reply: str, *, is_last: bool = False) -> "ActionResult":
        """Take a reply's actions, or the translator's `no_action` if the reply contains none.

        Raises:
            DeviceError: the phone failed.
            EnvError: the environment or the translator raised an error.
        """
        return await self._worker.call(self._with_open_streams, self._act, reply, is_last)

    def _with_open_streams(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function; raise EnvError if it closes a standard stream of this process."""
        try:
            result = function(*arguments)
        finally:
            closed = reopen_closed_streams()
        if closed:
            raise EnvError(f"{self.id} closed the job's {' and '.join(closed)}")
        return result

    def _reset(self, seed: int) -> StepResult:
        remember_streams()
        with boundary(EnvError, f"{self._config.id}.reset(seed={seed})"):
            if self._env is None:
                mode = getattr(self.translator, "render_mode", None)
                # Make a crash in native code print the Python line that led to it.
                if not faulthandler.is_enabled():
                    # sys.stderr may have no file, as in a notebook or when redirected.
                    with contextlib.suppress(AttributeError, OSError, RuntimeError, ValueError):
                        faulthandler.enable()
                self._env = self._make(mode, **self._device_kwargs)
                if hasattr(self._env.unwrapped, "shares_observations"):
                    # Shared arrays are hashed and scaled only once.
                    self._env.unwrapped.shares_observations = True
                if (attach_env := getattr(self.translator, "attach_env", None)) is not None:
                    attach_env(self._env)
            if (begin_episode := getattr(self.translator, "begin_episode", None)) is not None:
                begin_episode()
            observation, info = reset_env(self._env, seed)
            self._check_nothing_is_lost(info)
            self._turn = 0
            if hasattr(self.translator, "system_message"):
                system = instructions_for(self._config, self.translator, info)
                self._system = None if system == self.instructions else system
            self._preceding = preceding_for(self.translator, info)
            return self._step_result(observation, info)

    def _check_nothing_is_lost(self, reset_info: Mapping[str, Any]) -> None:
        """Check that the system and earlier messages of a remote environment reach the model.

        Raises:
            ConfigError: the default translator for servers leaves these messages out.
        """
        if self._config.translator_class is not None or not self.id.startswith("http"):
            return
        for key, what, method in (
            ("system", "a system message", "system_message"),
            ("preceding", "earlier messages", "preceding_messages"),
        ):
            if reset_info.get(key) and not hasattr(self.translator, method):
                raise ConfigError(
                    f"env.id={self.id}: an episode has {what} (info[{key!r}]), which the default "
                    "translator leaves out; set env.translator_class=QA-v0, or "
                    "env.translator_class=space if the model should not see it"
                )

    def _act(self, reply: str, is_last: bool) -> "ActionResult":
        with boundary(EnvError, f"the translator's to_action({quoted(reply, 80)})"):
            parsed = parse_actions(self.translator, reply, self._config.max_actions_per_reply)
        action: Any = None
        chunk: tuple[ExecutedAction, ...] = ()
        if not parsed.actions:
            with boundary(EnvError, "the translator's no_action()"):
                instead = self.translator.no_action()
            after = None if instead is None else self._step(instead)
        elif self._config.max_actions_per_reply == 1:
            (action,) = parsed.actions
            after = None if action is None else self._step(action)
        else:
            chunk, after = self._step_chunk(parsed.actions)
            action = [one.action for one in chunk]
        has_ended = after is not None and (after.terminated or after.truncated)
        # Compose the next message in the same call of the thread, which is cheaper.
        if not is_last and not has_ended and self._shown is not None:
            # `message` composes it again, and raises the error.
            with contextlib.suppress(EnvError):
                self._composed = self._shown, self._message(self._shown)
        return ActionResult(action=action, unreadable=parsed.error, after=after, chunk=chunk)

    def _step_chunk(self, actions: Sequence[Any]) -> tuple[tuple[ExecutedAction, ...], StepResult]:
        """Execute actions until the episode ends or another app comes to the foreground.

        Returns:
            The executed actions, and the last step's result with the rewards and timings of all.
        """
        chunk: list[ExecutedAction] = []
        timings: dict[str, float] = {}
        for action in actions:
            step = self._step(action)
            shown = "" if step.hidden else step.observation.text
            executed = ExecutedAction(
                action=action, reward=step.reward, info=step.info, shown=shown, frames=step.frames
            )
            chunk.append(executed)
            for name, seconds in step.timings.items():
                timings[name] = timings.get(name, 0.0) + seconds
            # The remaining actions were meant for the app, not for what is in front of it now.
            if step.terminated or step.truncated or step.hidden:
                break
        reward = sum(one.reward for one in chunk)
        return tuple(chunk), replace(step, reward=reward, timings=timings)

    def _step(self, action: Any) -> StepResult:
        # Only built for errors: formatting an array takes longer than a step.
        def name() -> str:
            return f"{self._config.id}.step({action!r:.200})"

        with boundary(EnvError, name):
            try:
                observation, reward, terminated, truncated, info = step_env(self._env, action)
            # Only a translator may raise ActionError: the agent is not at fault if a step fails.
            except ActionError as error:
                raise EnvError(f"{name()}: {describe_error(error)}") from error
            self._turn += 1
            self._preceding = ()
            number = finite("the reward", reward)
            # Rewards may read how the agent itself describes the outcome.
            if isinstance(action, Done):
                info = {"status": action.status, "message": action.message, **info}
            return self._step_result(observation, info, number, terminated, truncated)

    def _step_result(
        self,
        observation: Any,
        info: Mapping[str, Any],
        reward: float = 0.0,
        terminated: bool = False,
        truncated: bool = False,
    ) -> StepResult:
        translated = self._shown = self._translated(observation, info)
        checked = _check_info(info)
        if self._config.dialect is not None and translated.images:
            height, width = translated.images[-1].shape[:2]
            checked = {"screen_size": [width, height], **checked}
        if self._config.state_key != "info":
            coarsen = coarse_screen if self._config.state_key == "screen" else None
            checked = {**checked, "state_key": _state_key(translated, coarsen)}
        # The guard reports another app in front, whose screen is private.
        guard = checked.get("guard")
        hidden = isinstance(guard, Mapping) and bool(guard.get("no_frame"))
        if self._schema is not None and not hidden:
            with boundary(EnvError, f"the state schema of {self.id}"):
                checked = {**checked, **to_builtin(true_state(self._schema, checked))}
        save = None if hidden else self._save_frame
        # An environment may use an attribute with this name for something else.
        timings = getattr(self._env.unwrapped, "timings", None)
        named = timings.items() if isinstance(timings, Mapping) else ()
        return StepResult(
            observation=translated,
            info=checked,
            frames=tuple(map(save, translated.images)) if save else (),
            env_observation=observation,
            hidden=hidden,
            timings={str(k): float(v) for k, v in named if isinstance(v, int | float)},
            reward=reward,
            terminated=terminated,
            truncated=truncated,
        )

    def _translated(self, observation: Any, info: Mapping[str, Any]) -> Observation:
        """Check an observation, and translate it for the model.

        Raises:
            EnvError: the observation is not in the observation space, or is too long.
            ConfigError: the translator cannot show the observation.
        """
        where = f"{self.id}: the observation after {pluralize(self._turn, 'step')}"
        space = self._env.observation_space
        if problem := observation_problem(space, observation, where):
            raise EnvError(problem)
        # Log once: an environment with wrong bounds leaves them at every step.
        if self.id not in _warned and not is_within(space, observation):
            _warned.add(self.id)
            log.warning("%s is out of bounds for its space %s", where, space)
        try:
            found = self.translator.to_observation(observation, info)
        except ConfigError as error:
            raise ConfigError(f"{where}: {message_of(error)}") from error
        if len(found.text) > _MOST_TEXT:
            raise EnvError(
                f"{where} has {len(found.text):,} characters; the maximum is {_MOST_TEXT:,}"
            )
        return found

    async def message(self, observation: Observation) -> Message:
        """Return the translator's message to the policy.

        Raises:
            EnvError: the translator raised an error.
        """
        composed, self._composed = self._composed, None
        if composed is not None and composed[0] is observation:
            return composed[1]
        return await self._worker.call(self._message, observation)

    def _message(self, observation: Observation) -> Message:
        with boundary(EnvError, "the translator's message"):
            message = compose_message(self._config, self.translator, observation, self._preceding)
        if message.system is None and self._system is not None:
            return replace(message, system=self._system)
        return message

    def close(self) -> None:
        """Close the environment as soon as its thread is free, without waiting."""
        self._worker.close(self._close_env)

    def is_closed(self, wait_s: float) -> bool:
        """Wait up to `wait_s` for a closing environment; return whether it is closed."""
        return self._worker.join(wait_s)

    def _close_env(self) -> None:
        if self._env is not None:
            place = "" if self.device is None else f" on {self.device}"
            close_env(self._env, f"{self.id}{place}")
            reopen_closed_streams()
