"""The number game as a Gymnasium environment over a phone."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agentrl.devices import Device, Guard, Left, Look, Settled, Tap, Wait, open_device
from agentrl.envs.android.app import ACTIVITY, PACKAGE, NumberGameApp
from agentrl.envs.android.levels import checked_level
from agentrl.envs.android.rules import STAKE, Phase
from agentrl.envs.android.translator import MODES
from agentrl.envs.android.truth import Truth
from agentrl.envs.android.view import in_layout, on_screen
from agentrl.errors import CaptureError, ConfigError, EnvError
from agentrl.types import Image

_APP = f"{NumberGameApp.__module__}:{NumberGameApp.__name__}"
_LOOK_AGAIN_S = 0.05

_Action = NDArray[np.float32] | int
_Info = dict[str, Any]


class NumberGame(gymnasium.Env[Image, _Action]):
    """Ten rounds of picking the card that the lamp asks for, played on a phone.

    Observation: the settled screen, uint8[H, W, 3]. Action: where to tap, float32[2] in [0, 1] of
    the screen, so that the player presses the button itself; with `mode="select"` the card, from 0
    in reading order, and the button is pressed for the player. Reward: +1 for a right pick, -1 for
    a wrong one and for a round whose time is up; a player who leaves the game loses every pick that
    is left. `info` is the truth that the game publishes, read from the phone, with `state_key`
    naming seed, round, phase and what a running clock has left, `changed` telling whether the last
    tap did anything but take time, `guard` what else came to the front, if anything did, and
    `metrics`: the share of right picks among all rounds, played or not, and the score.

    The settings from `memory` to `timed` make the level, and combine freely. Time means touches:
    each touch that picks no card while one can be picked brings a round with `timed` nearer to its
    end, and only touches do.

    Args:
        device: a phone as `agentrl.devices.open_device` takes it: a serial, a lease, or `virtual`
            for a phone of its own.
        mode: `tap` or `select`.
        rounds: of one game.
        memory: whether the lamp is shown before the cards and is out when they are turned.
        digits: 1 for numbers from 1 to 9, 2 for numbers from 10 to 99.
        cards: 3, or 4, where yellow asks for the second largest number.
        moved: whether cards, button and words lie elsewhere in every round.
        distractor: whether a line about numbers or lamps, of no use, stands on the screen.
        timed: the touches after which a round without a pick is lost; 0 for no clock. In the mode
            `select` every touch picks, so that no time is lost.
        allow: packages that may be in front beside the game; see `agentrl.devices.Guard`.
        truth: where `info` and reward come from. `state`: what the game publishes. `sight`: what
            its screen shows, as in a game that publishes nothing; `seed` is the one that was asked
            for, and `tip` is left out. `audit`: the state, and `info["audit"]` says which facts
            were read off the screen as they are and which were not; `metrics` counts the latter.
        render_mode: None or `rgb_array`.

    Raises:
        ConfigError: a mode, a number of rounds or a level that does not exist.
        DeviceError: the phone cannot be reached.

    `reset` raises EnvError where the game's state is not that of this launch in time, and `step`
    AppLeft where the world, and not the player, put something in front that does not go away.
    `timings` are the seconds of the last step: `settle`, waiting for the screen, and `effect`, to
    the first sign of the last tap, where there was one.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own

    def __init__(
        self,
        device: str = "virtual",
        mode: str = "tap",
        rounds: int = 10,
        memory: bool = False,
        digits: int = 1,
        cards: int = 3,
        moved: bool = False,
        distractor: bool = False,
        timed: int = 0,
        allow: Sequence[str] = (),
        truth: str = "state",
        render_mode: str | None = None,
    ) -> None:
        if mode not in MODES:
            raise ConfigError(f"mode is {mode!r}; it must be one of {', '.join(MODES)}.")
        if rounds < 1:
            raise ConfigError(f"rounds is {rounds}; a game has at least 1.")
        self.mode = mode
        self.rounds = rounds
        self.level = checked_level(
            memory=memory,
            digits=digits,
            cards=cards,
            moved=moved,
            distractor=distractor,
            timed=timed,
        )
        self._told = Truth(truth, self.level)
        self.render_mode = render_mode
        self._device: Device = open_device(device, apps=[_APP])
        width, height = self._device.size()
        self.observation_space = spaces.Box(0, 255, (height, width, 3), np.uint8)
        self.action_space = _action_space(mode, cards)
        self.timings: dict[str, float] = {}
        self._guard = Guard(self._device, PACKAGE, allow, turns=False)
        self._events: tuple[Left, ...] = ()
        self._screen: Image = np.zeros((height, width, 3), np.uint8)
        self._truth: Mapping[str, Any] = {}
        self._changed = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Image, _Info]:
        """Launch the game with this seed, or with a drawn one where none is given."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31)) if seed is None else seed
        extras = {"seed": str(drawn), "rounds": str(self.rounds), **self.level.extras()}
        self._begin_step()
        shown = self._launch(extras, drawn)
        self._told.begin(drawn)
        self._keep(shown)
        self._changed = True
        return shown.frame, self._info()

    def step(self, action: _Action) -> tuple[Image, float, bool, bool, _Info]:
        """Tap, wait until the screen has settled, and read the score from the game."""
        if not self.action_space.contains(action):
            raise ValueError(
                f"{action!r} is no action of the mode {self.mode}: {self.action_space}"
            )
        score, left = self._truth["score"], self.rounds - self._picks()
        self._begin_step()
        if self.mode == "select":
            stayed = self._select(int(action))
        else:
            x, y = (float(share) for share in np.asarray(action))
            stayed = self._tap(x, y)
        if not stayed:  # with the last screen of the game: what is in front now is none of it
            return self._screen, float(-left), True, False, {**self._info(), "left": True}
        reward = (self._truth["score"] - score) / STAKE
        return self._screen, float(reward), bool(self._truth["done"]), False, self._info()

    def render(self) -> Image | None:
        """The last settled screen, with `render_mode="rgb_array"`."""
        return self._screen if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Give the phone back."""
        self._device.close()

    def _launch(self, extras: Mapping[str, str], seed: int) -> Settled:
        """Start the game; the first screen that is of this launch, as its state is."""
        self._guard.begin()
        old = self._device.look(PACKAGE)
        self._screen = self._without_game(old)
        self._device.launch(PACKAGE, ACTIVITY, extras)

        def is_new(shown: Settled) -> bool:
            state = shown.state
            if state is None:
                return self._told.begins(in_layout(shown, self._device.app_area()))
            if state["seed"] != seed:
                return False
            return old.state is None or state["launches"] != old.state["launches"]

        serial, deadline_s = self._device.serial, self._device.deadlines.launch_s
        shown = self._look_until(
            is_new,
            self._look(),
            deadline_s,
            EnvError(
                f"{serial}: {PACKAGE} was launched with the seed {seed} and publishes no state of "
                f"that game; can it write its file? ({deadline_s:g} s)"
            ),
        )
        return self._look_until(
            lambda shown: shown.changed,
            shown,
            deadline_s,
            CaptureError(
                f"{serial}: {PACKAGE} was launched and the screen stayed as it was for "
                f"{deadline_s:g} s: the captures are stale"
            ),
        )

    def _without_game(self, now: Look) -> Image:
        """The screen without the game: what it shows after a launch must be something else.

        Launched from its own last screen, it would show that, then what lies below, then the new
        game: captures that repeat either of the first two could not be told from the game.

        Raises:
            CaptureError: the phone does not let itself be seen.
        """
        end_s = time.monotonic() + self._device.deadlines.settle_s
        if now.front == PACKAGE:
            self._device.stop(PACKAGE)
        while True:
            is_late = time.monotonic() >= end_s
            if self._device.focus() != PACKAGE or is_late:
                try:
                    return self._device.screenshot()
                except CaptureError:
                    if is_late:
                        raise
            time.sleep(_LOOK_AGAIN_S)

    def _begin_step(self) -> None:
        self._events, self.timings = (), {}

    def _select(self, card: int) -> bool:
        """Pick a card, then press the button up to the next screen that asks for a card."""
        stayed = True
        if self._truth["phase"] != Phase.LAMP:
            stayed = self._tap(*self._truth["places"]["cards"][card])
        if stayed and self._truth["phase"] in (Phase.LAMP, Phase.REVEAL):
            stayed = self._tap(*self._truth["places"]["button"])
        return stayed

    def _tap(self, x: float, y: float) -> bool:
        """Tap and wait; whether the player is still in the game."""
        settled = self._guarded(Tap(x, y))
        if settled is None:
            return False
        before = self._truth
        self._keep(settled)
        self._changed = settled.changed and not _only_time_passed(before, self._truth)
        return True

    def _look(self, after_s: float = 0.0) -> Settled:
        settled = self._guarded(Wait(after_s))
        assert settled is not None, "who only looks does not leave"
        return settled

    def _guarded(self, action: Tap | Wait) -> Settled | None:
        guarded = self._guard.act(action, before=self._screen, state_shows=not self.level.timed)
        self._events += guarded.events
        settled = guarded.settled
        if settled is not None:
            self.timings["settle"] = self.timings.get("settle", 0.0) + settled.seconds
            if settled.effect_s is not None:
                self.timings["effect"] = settled.effect_s
        return settled

    def _look_until(
        self, enough: Callable[[Settled], bool], shown: Settled, deadline_s: float, error: Exception
    ) -> Settled:
        """Look again and again until what is shown is enough; the error, if it is not in time."""
        end = time.monotonic() + deadline_s
        while not enough(shown):
            if time.monotonic() >= end:
                raise error
            shown = self._look(_LOOK_AGAIN_S)
        return shown

    def _keep(self, shown: Settled) -> None:
        area = self._device.app_area()
        try:
            # An app that is allowed beside the game may cover it.
            in_front = shown.front in (None, PACKAGE)
            facts = self._told.of(in_layout(shown, area), in_front=in_front)
        except EnvError as error:
            raise EnvError(f"{self._device.serial}: {PACKAGE}: {error}") from error
        self._truth = on_screen(facts, area)
        self._screen = shown.frame

    def _picks(self) -> int:
        return int(self._truth["right"] + self._truth["wrong"])

    def _info(self) -> _Info:
        truth = self._truth
        guard = {"guard": self._events[-1].told()} if self._events else {}
        return {
            **truth,
            **guard,
            "state_key": _state_key(truth),
            "changed": self._changed,
            "metrics": {
                "accuracy": truth["right"] / self.rounds,
                "score": truth["score"],
                **self._told.metrics(),
            },
            **self._told.told(),
        }


def _action_space(mode: str, cards: int) -> "spaces.Space[Any]":
    if mode == "select":
        return spaces.Discrete(cards)
    return spaces.Box(0.0, 1.0, (2,), np.float32)


def _state_key(truth: Mapping[str, Any]) -> str:
    key = f"{truth['seed']}/{truth['round']}/{truth['phase']}"
    runs = truth["timed"] and truth["phase"] == Phase.PICK
    return f"{key}/{truth['time_left']}" if runs else key


def _only_time_passed(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    same_phase: bool = before["phase"] == after["phase"]
    return same_phase and before["time_left"] != after["time_left"]
