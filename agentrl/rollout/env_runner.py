"""One environment and its translator, driven from an event loop.

Environments block, so each world has a thread of its own; every call has the deadline of the
episode around it. A world whose call did not come back in time is given up, thread and all.
"""

import hashlib
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import PIL.Image

from agentrl.config import EnvConfig
from agentrl.errors import ActionError, EnvError, boundary, told
from agentrl.rollout.make_env import instructions_of, make_env, open_translator
from agentrl.text import quoted
from agentrl.types import Image, Message, Observation
from agentrl.worker_threads import Worker

log = logging.getLogger(__name__)

Make = Callable[..., Any]
"""Takes an EnvConfig and a render mode; gives the environment."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Sight:
    """What a world shows after a reset or a step."""

    observation: Observation
    info: Mapping[str, Any]
    frames: tuple[str, ...]
    hidden: bool = False
    """Whether it shows something that must not be recorded."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Seconds of parts of the step, as the environment tells."""
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False


@dataclass(slots=True, kw_only=True, frozen=True)
class Move:
    """What a reply has done."""

    action: Any
    unreadable: str | None
    """Why the reply was no action."""
    after: Sight | None
    """None where nothing was done."""


def plain(value: Any) -> Any:
    """The same value without numpy types, so that it can be written as JSON."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


def _checked(info: Any) -> Mapping[str, Any]:
    """What an environment tells, as plain values; what others read of it must be readable.

    Raises:
        TypeError, ValueError: it is no dictionary, its metrics are no numbers, or its `state_key`
            is no text.
    """
    if not isinstance(info, Mapping):
        raise TypeError(f"info is {type(info).__name__}, not a dictionary")
    told: dict[str, Any] = plain(info)
    if not isinstance(told.get("state_key"), str | None):
        raise TypeError(f"info['state_key'] is {told['state_key']!r:.80}, neither text nor None")
    metrics = told.get("metrics", {})
    if not isinstance(metrics, Mapping):
        raise TypeError(f"info['metrics'] is {metrics!r:.80}, not a dictionary of numbers")
    for name, value in metrics.items():
        if not name.isprintable():
            raise ValueError(f"info['metrics'] has the name {name!r}, which cannot be shown")
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"info['metrics'][{name!r}] is {value!r:.80}, not a finite number")
    return told


def _is_hidden(info: Mapping[str, Any]) -> bool:
    """Whether a guard says that another app is in front; why stands in the same place."""
    guard = info.get("guard")
    return isinstance(guard, Mapping) and bool(guard.get("no_frame"))


def _seconds(timings: Any) -> Mapping[str, float]:
    """What an environment tells of its time in `timings`; others may call other things so."""
    if not isinstance(timings, Mapping):
        return {}
    return {str(k): float(v) for k, v in timings.items() if isinstance(v, int | float)}


def _key_of(seen: Observation, look: Callable[[Image], Image] | None = None) -> str:
    """The same for equal observations, or for those whose pictures look the same."""
    digest = hashlib.blake2b(seen.text.encode("utf-8", "replace"), digest_size=16)
    for image in seen.images:
        digest.update(str(image.shape).encode() + (look(image) if look else image).tobytes())
    return digest.hexdigest()


_STATUS_BAR = 0.05
"""Share of a screen's height in which the clock and the battery never stand still."""
_FIELDS, _LEVELS = 64, 8


def glance(image: Image) -> Image:
    """uint8[64, 64], a screen as it looks at a glance: fields of 8 levels of grey each.

    A moving clock in the status bar, a cursor or the noise of a compressed capture leave it as it
    is; the last but for fields whose grey lies at the edge of a level.

    Args:
        image: uint8[H, W, 3].
    """
    shown = image[int(_STATUS_BAR * len(image)) :]
    grey = (
        PIL.Image.fromarray(shown).convert("L").resize((_FIELDS, _FIELDS), PIL.Image.Resampling.BOX)
    )
    return np.asarray(grey) // (256 // _LEVELS)


class World:
    """One environment instance, reused for many episodes.

    Args:
        config: which environment.
        keep_frame: stores a full frame and returns its id; None keeps none.
        device: the serial of the phone it plays on; None for an environment without one.
        lease: what the environment is given as its `device`.
        make: makes the environment, in its render mode.
    """

    def __init__(
        self,
        config: EnvConfig,
        keep_frame: Callable[[Image], str] | None,
        device: str | None = None,
        lease: str | None = None,
        make: Make = make_env,
    ) -> None:
        self.translator = open_translator(config)
        self.instructions = instructions_of(config, self.translator)
        self.device = device
        self._place = {} if lease is None else {"device": lease}
        self._make = make
        self._config = config
        self._keep_frame = keep_frame
        self._env: Any = None
        self._worker = Worker(f"world-{device or 'env'}")

    async def reset(self, seed: int) -> Sight:
        """Begin an episode.

        Raises:
            DeviceError: the phone failed.
            EnvError: the environment raised.
        """
        return await self._worker.call(self._reset, seed)

    async def act(self, reply: str) -> "Move":
        """Do what a reply means; what is no action is done as the translator's `no_action`.

        Raises:
            DeviceError: the phone failed.
            EnvError: the environment or the translator raised.
        """
        return await self._worker.call(self._act, reply)

    def _reset(self, seed: int) -> Sight:
        with boundary(EnvError, f"{self._config.id}.reset(seed={seed})"):
            if self._env is None:
                mode = getattr(self.translator, "render_mode", None)
                self._env = self._make(self._config, mode, **self._place)
                if (meet := getattr(self.translator, "meet", None)) is not None:
                    meet(self._env)
            observation, info = self._env.reset(seed=seed)
            return self._sight(observation, info)

    def _act(self, reply: str) -> "Move":
        unreadable = None
        try:
            with boundary(EnvError, f"the translator's reading of {quoted(reply, 80)}"):
                action = self.translator.to_action(reply)
        except ActionError as error:
            action, unreadable = self.translator.no_action(), str(error)
        after = None if action is None else self._step(action)
        return Move(action=action, unreadable=unreadable, after=after)

    def _step(self, action: Any) -> Sight:
        with boundary(EnvError, f"{self._config.id}.step({action!r})"):
            try:
                observation, reward, terminated, truncated, info = self._env.step(action)
            except ActionError as error:  # the translator's to raise; the reply was readable
                raise EnvError(f"{self._config.id}.step({action!r}): {told(error)}") from error
            return self._sight(observation, info, float(reward), bool(terminated), bool(truncated))

    def _sight(
        self,
        observation: Any,
        info: Mapping[str, Any],
        reward: float = 0.0,
        terminated: bool = False,
        truncated: bool = False,
    ) -> Sight:
        seen = self.translator.to_observation(observation, info)
        told = _checked(info)
        if self._config.state_key != "info":
            look = glance if self._config.state_key == "screen" else None
            told = {**told, "state_key": _key_of(seen, look)}
        hidden = _is_hidden(told)
        keep = None if hidden else self._keep_frame
        return Sight(
            observation=seen,
            info=told,
            frames=tuple(map(keep, seen.images)) if keep else (),
            hidden=hidden,
            timings=_seconds(getattr(self._env.unwrapped, "timings", {})),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
        )

    async def message(self, observation: Observation) -> Message:
        """What the policy is told, in the translator's words.

        Raises:
            EnvError: the translator raised.
        """
        return await self._worker.call(self._message, observation)

    def _message(self, observation: Observation) -> Message:
        with boundary(EnvError, "the translator's message"):
            return self.translator.to_message(observation)

    def close(self) -> None:
        """Close the environment as soon as its thread is free; does not wait for it."""
        self._worker.close(self._close_env)

    def _close_env(self) -> None:
        if self._env is None:
            return
        try:
            self._env.close()
        except Exception as error:  # the world is gone either way
            log.warning("closing %s on %s: %s", self._config.id, self.device, error)
