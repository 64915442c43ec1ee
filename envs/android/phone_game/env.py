"""A phone game as a Gymnasium environment."""

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agentrl.devices import AppExit, Device, Look, Settled, Swipe, Tap, open_device
from agentrl.envs.android.app_session import AppSession
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.game_action_calls import MODES, NamedCalls
from agentrl.envs.android.phone_game.game_app import GameApp
from agentrl.envs.android.phone_game.layout_conversion import targets_to_screen
from agentrl.envs.android.phone_game.level_settings import LevelSettings, PacedSettings, signature
from agentrl.errors import EnvError, InvalidArgument
from agentrl.types import Image

Action = NDArray[np.float32] | int
Facts = Mapping[str, Any]
Info = dict[str, Any]

PRIVATE = ("touches", "launches")
"""Published by the phone, not the game: they depend on how the phone was used before."""
_SPOT = 0.03
"""A swipe shorter than this, |dx| + |dy| in [0, 1] of the screen, is a tap."""


class GameEnv(gymnasium.Env[Image, Action]):
    """A game on a phone. Each game subclasses it and sets `app`.

    Observation: the settled screen, uint8[H, W, 3]. Action in the mode `touch`: where to tap,
    float32[2] in [0, 1] of the screen; for games with swipes float32[4], start and end, and a
    swipe that ends where it starts is a tap. Action in the mode `calls`: the index of a call, which
    touches the position that the game publishes for it. Reward: the change of a number that the
    game publishes; an agent that leaves the game gets the lowest possible reward. `info` is the
    true state that the game publishes, plus `state_key` (identifies everything that the rest of
    the game depends on), `changed` (whether the last action did anything), `guard` (what else came
    to the front, if anything did), `side_effects` (the apps and windows that the agent opened
    instead) and `metrics`.

    Args:
        device: a phone in a form that `agentrl.devices.open_device` accepts: a serial, a lease, or
            `virtual` for a private virtual phone.
        mode: `touch` or `calls`.
        allow: packages that may be in front besides the game; see `agentrl.devices.AppGuard`.
        render_mode: None or `rgb_array`.
        **settings: the game's level.

    Raises:
        ConfigError: unknown mode or invalid level.
        DeviceError: the phone cannot be reached.

    `reset` raises EnvError if the game does not publish the state of this launch in time. `step`
    raises AppLeft if something other than the agent put an app in front that does not go away.
    `timings` are the seconds of the last step; see `AppSession`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own

    app: ClassVar[type[GameApp]]
    modes: ClassVar[tuple[str, str]] = MODES

    def __init_subclass__(cls) -> None:
        if "app" in cls.__dict__:
            level = cls.app.game.level
            cls.__signature__ = signature(cls.__init__, level)  # type: ignore[attr-defined]

    def __init__(
        self,
        device: str = "virtual",
        mode: str = "touch",
        allow: Sequence[str] = (),
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        if mode not in self.modes:
            raise InvalidArgument("mode", mode, f"one of {', '.join(self.modes)}")
        self.mode = mode
        self.level: LevelSettings = self.game.level.checked(**settings)
        self.render_mode = render_mode
        self._calls = self.calls()
        app = f"{self.app.__module__}:{self.app.__name__}"
        self.device: Device = open_device(device, apps=[app])
        runs = isinstance(self.level, PacedSettings) and self.level.runs
        settling = {"moving": True} if runs else {"state_shows": self.state_is_visible()}
        self._session = AppSession(self.device, self.game.package, allow, **settling)
        width, height = self.device.size()
        self.observation_space = copy.copy(_screens(height, width))
        self.action_space = self.actions()
        self.facts: Facts = {}
        """The true state behind the last screen."""
        self._changed = True
        self.shares_observations = False
        """Whether to return the same array for an unchanged screen, which Gymnasium forbids."""

    @classmethod
    def check_kwargs(cls, **kwargs: Any) -> None:
        """Check the level before any phone is started.

        Raises:
            InvalidArgument: a setting has an invalid value.
        """
        level = cls.app.game.level
        names = {setting.name for setting in fields(level)}
        level.checked(**{name: value for name, value in kwargs.items() if name in names})

    @property
    def game(self) -> PhoneGame:
        """The description of the game."""
        return self.app.game

    @property
    def timings(self) -> Mapping[str, float]:
        """Seconds of the last step."""
        return self._session.timings

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Image, Info]:
        """Launch the game with this seed, by default a random seed."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31)) if seed is None else seed
        self._session.begin_step()
        self.begin(drawn)
        self._keep(self._launch(drawn))
        self._changed = True
        return self._session.observation(shared=self.shares_observations), self._info()

    def _launch(self, seed: int) -> Settled:
        """Launch the game, which publishes its seed, and return its first screen."""
        extras = {"seed": str(seed), **self.extras()}

        def is_new(shown: Settled, old: Look) -> bool:
            state = shown.state
            if state is None:
                return self.is_first_screen(shown)
            if state["seed"] != seed:
                return False
            # The previous game may have had the same seed.
            return old.state is None or state["launches"] != old.state["launches"]

        package, activity = self.game.package, self.game.activity
        return self._session.launch(
            lambda: self.device.launch(package, activity, extras),
            is_new,
            failure=f"{package} was launched with seed {seed}, but did not publish the state of "
            "that game",
            advice="can it write its state file?",
        )

    def step(self, action: Action) -> tuple[Image, float, bool, bool, Info]:
        """Act, wait until the screen has settled, and read the new state from the game."""
        if not self.action_space.contains(action):
            raise ValueError(
                f"{action!r} is not an action of mode={self.mode}: {self.action_space}"
            )
        # The reward for leaving depends on the state before the action.
        before = self.facts
        self._session.begin_step()
        if self.mode == self.modes[0]:
            stayed = self._act(_touch_at(np.asarray(action)))
        else:
            stayed = self.call(int(action))
        # After leaving, another app is in front: keep returning the game's last screen.
        screen = self._session.observation(shared=self.shares_observations)
        if not stayed:
            reward = float(self.exit_reward(before))
            return screen, reward, True, False, {**self._info(), "left": True}
        reward = float(self.reward(before, self.facts))
        return screen, reward, bool(self.facts["done"]), False, self._info()

    def render(self) -> Image | None:
        """Return the last settled screen, with `render_mode="rgb_array"`."""
        return self._session.screen if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Release the phone."""
        self.device.close()

    # Hooks that a game may override.

    def actions(self) -> "spaces.Space[Any]":
        """Return the action space of this mode."""
        if self.mode == self.modes[0]:
            return spaces.Box(0.0, 1.0, (4 if self.game.swipes else 2,), np.float32)
        return spaces.Discrete(len(self._calls))

    def calls(self) -> NamedCalls:
        """Return the calls of the mode `calls`."""
        return NamedCalls(self.game.calls)

    def call(self, number: int) -> bool:
        """Perform a call. Returns whether the agent is still in the game."""
        name, index = self._calls[number]
        return self.touch(name, index)

    def extras(self) -> dict[str, str]:
        """Return the launch extras apart from the seed."""
        return self.level.extras()

    def reward(self, before: Facts, after: Facts) -> float:
        """Return the reward of an action."""
        key = self.game.reward_fact
        return float(self.game.reward_scale * (after[key] - before[key]))

    def exit_reward(self, facts: Facts) -> float:
        """Return the reward for leaving, so low that finishing the game is never worse."""
        reward = self.game.exit_reward
        return reward(facts) if callable(reward) else reward

    def metrics(self, facts: Facts) -> dict[str, float]:
        """Return the numbers for `info["metrics"]`."""
        return {name: float(facts[name]) for name in self.game.metrics}

    def state_key(self, facts: Facts) -> str:
        """Return the state's key: after equal keys, the same actions have the same results."""
        # The game's position on the phone's screen is not part of the game's state.
        state = {name: value for name, value in facts.items() if name != "touch_targets"}
        text = json.dumps(state, sort_keys=True, ensure_ascii=False)
        return f"{facts['seed']}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def had_effect(self, before: Facts, after: Facts) -> bool:
        """Return whether the action caused the change from `before` to `after`."""
        return True

    def state_is_visible(self) -> bool:
        """Return whether every change of the published state is visible on the screen."""
        return True

    def read_facts(self, shown: Settled) -> Facts:
        """Return the true state behind a screen.

        Raises:
            EnvError: the game publishes no state.
        """
        if shown.state is None:
            raise EnvError("the game publishes no state.")
        return {name: value for name, value in shown.state.items() if name not in PRIVATE}

    def is_first_screen(self, shown: Settled) -> bool:
        """Return whether a screen without published state is the first screen of a game."""
        return False

    def begin(self, seed: int) -> None:
        """Prepare for a new game; called before its launch."""

    def extra_info(self) -> Info:
        """Return additional entries of `info`."""
        return {}

    def touch(self, name: str, index: int | None = None) -> bool:
        """Touch one of the published positions. Returns whether the agent is still in the game."""
        target = self.facts["touch_targets"][name]
        return self._act(_touch_at(target if index is None else target[index]))

    def _act(self, action: Tap | Swipe) -> bool:
        """Act and wait until settled. Returns whether the agent is still in the game."""
        settled = self._session.act(action)
        if settled is None:
            return False
        before, screen = self.facts, self._session.screen
        settled = self._when_over(settled)
        self._keep(settled)
        self._changed = settled.changed and self.had_effect(before, self.facts)
        # A game can also be closed with its own buttons, without another package in front.
        if how := self.facts.get("closed"):
            left = AppExit(kind="foreign_app", package=self.game.package, by="agent", evidence=how)
            self._session.events += (left,)
            self._session.screen = screen
            return False
        return True

    def _when_over(self, settled: Settled) -> Settled:
        """Wait for the animation started by the action, and return the screen after it."""
        package, deadline_s = self.game.package, self.device.deadlines.settle_s
        return self._session.look_until(
            lambda shown: not (shown.state or {}).get("busy"),
            settled,
            deadline_s,
            EnvError(f"{self.device.serial}: {package} is still busy after {deadline_s:g} s"),
        )

    def _keep(self, shown: Settled) -> None:
        try:
            facts = self.read_facts(shown)
        except EnvError as error:
            raise EnvError(f"{self.device.serial}: {self.game.package}: {error}") from error
        self.facts = targets_to_screen(facts, self.device.app_area())
        self._session.screen = shown.frame

    def _info(self) -> Info:
        events = self._session.events
        return {
            **self.facts,
            **({"guard": events[-1].to_info()} if events else {}),
            "state_key": self.state_key(self.facts),
            "changed": self._changed,
            "side_effects": [one.package or one.kind for one in events if one.by == "agent"],
            "metrics": self.metrics(self.facts),
            **self.extra_info(),
        }


@lru_cache(maxsize=8)
def _screens(height: int, width: int) -> "spaces.Space[Image]":
    """Return the space of screens, cached because creating it takes as long as several turns."""
    return spaces.Box(0, 255, (height, width, 3), np.uint8)


def _touch_at(target: Sequence[float] | NDArray[np.float32]) -> Tap | Swipe:
    """Convert two numbers to a tap, four to a swipe, or to a tap if it ends where it starts."""
    if len(target) == 2:
        return Tap(float(target[0]), float(target[1]))
    x1, y1, x2, y2 = (float(share) for share in target)
    if abs(x1 - x2) + abs(y1 - y2) < _SPOT:
        return Tap(x1, y1)
    return Swipe(x1, y1, x2, y2)
