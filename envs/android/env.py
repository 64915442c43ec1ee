"""The number game as a Gymnasium environment over a phone."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agentrl.devices import Device, Settled, Tap, Wait, act_and_settle, open_device, read_state
from agentrl.envs.android import layout
from agentrl.envs.android.app import ACTIVITY, PACKAGE, NumberGameApp
from agentrl.envs.android.rules import CARDS, STAKE, Phase
from agentrl.envs.android.translator import MODES
from agentrl.errors import ConfigError, EnvError
from agentrl.types import Image

_APP = f"{NumberGameApp.__module__}:{NumberGameApp.__name__}"
_PRIVATE = ("touches", "launches")
"""What the phone publishes beside the game: it tells how the phone was used before."""

_LOOK_AGAIN_S = 0.05

_Action = NDArray[np.float32] | int
_Info = dict[str, Any]


class NumberGame(gymnasium.Env[Image, _Action]):
    """Ten rounds of picking the card that the lamp asks for, played on a phone.

    Observation: the settled screen, uint8[H, W, 3]. Action: where to tap, float32[2] in [0, 1] of
    the screen, so that the player presses the button itself; with `mode="select"` the card, 0 to
    2, and the button is pressed for the player. Reward: +1 for a right pick, -1 for a wrong one;
    a player who leaves the game loses every pick that is left. `info` is the truth that the game
    publishes, read from the phone, with `state_key` naming seed, round and phase, `changed`
    telling whether the last tap did anything, and `metrics`: the share of right picks among all
    rounds, played or not, and the score.

    Args:
        device: a phone as `agentrl.devices.open_device` takes it: a serial, a lease, or `virtual`
            for a phone of its own.
        mode: `tap` or `select`.
        rounds: of one game.
        memory: whether the lamp is shown before the cards and is out when they are turned.
        render_mode: None or `rgb_array`.

    Raises:
        ConfigError: a mode or a number of rounds that does not exist.
        DeviceError: the phone cannot be reached.

    `reset` raises EnvError where the game's state is not that of this launch in time, and `step`
    where nothing is in front: only another package in front is the player's own leaving.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own

    def __init__(
        self,
        device: str = "virtual",
        mode: str = "tap",
        rounds: int = 10,
        memory: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if mode not in MODES:
            raise ConfigError(f"mode is {mode!r}; it must be one of {', '.join(MODES)}.")
        if rounds < 1:
            raise ConfigError(f"rounds is {rounds}; a game has at least 1.")
        self.mode = mode
        self.rounds = rounds
        self.memory = memory
        self.render_mode = render_mode
        self._device: Device = open_device(device, apps=[_APP])
        width, height = self._device.size()
        self.observation_space = spaces.Box(0, 255, (height, width, 3), np.uint8)
        self.action_space = _action_space(mode)
        self._screen: Image = np.zeros((height, width, 3), np.uint8)
        self._truth: Mapping[str, Any] = {}
        self._changed = True
        self._front: str | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Image, _Info]:
        """Launch the game with this seed, or with a drawn one where none is given."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31)) if seed is None else seed
        extras = {"seed": drawn, "rounds": self.rounds, "memory": str(self.memory).lower()}
        told = {name: str(value) for name, value in extras.items()}
        shown = self._launch(told, drawn)
        self._keep(shown.frame, shown.state)
        self._changed, self._front = True, shown.front
        return shown.frame, self._info()

    def step(self, action: _Action) -> tuple[Image, float, bool, bool, _Info]:
        """Tap, wait until the screen has settled, and read the score from the game."""
        if not self.action_space.contains(action):
            raise ValueError(
                f"{action!r} is no action of the mode {self.mode}: {self.action_space}"
            )
        score, left = self._truth["score"], self.rounds - self._picks()
        if self.mode == "select":
            self._select(int(action))
        else:
            x, y = (float(share) for share in np.asarray(action))
            self._tap(x, y)
        if self._front != PACKAGE:
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
        """Start the game; the first screen whose state is of this launch and not of an old one."""
        old = read_state(self._device, PACKAGE)
        self._device.launch(PACKAGE, ACTIVITY, extras)

        def is_new(shown: Settled) -> bool:
            state = shown.state
            if state is None or state["seed"] != seed:
                return False
            return old is None or state["launches"] != old["launches"]

        return self._look_until(
            is_new,
            self._look(),
            self._device.deadlines.launch_s,
            f"{PACKAGE} was launched with the seed {seed} and publishes no state of that game; "
            "can it write its file?",
        )

    def _select(self, card: int) -> None:
        """Pick a card, then press the button up to the next screen that asks for a card."""
        if self._truth["phase"] != Phase.LAMP:
            self._tap(*layout.tap_at(layout.CARDS[card]))
        if self._front == PACKAGE and self._truth["phase"] in (Phase.LAMP, Phase.REVEAL):
            self._tap(*layout.tap_at(layout.BUTTON))

    def _tap(self, x: float, y: float) -> None:
        settled = self._look_until(
            # Between two windows none has the focus, which is not the player's doing.
            lambda settled: settled.front is not None,
            act_and_settle(self._device, Tap(x, y), before=self._screen, package=PACKAGE),
            self._device.deadlines.settle_s,
            "nothing is in front after a tap; is the phone locked, or a dialog open?",
        )
        self._changed, self._front = settled.changed, settled.front
        self._keep(settled.frame, settled.state)

    def _look(self, after_s: float = 0.0) -> Settled:
        return act_and_settle(self._device, Wait(after_s), before=self._screen, package=PACKAGE)

    def _look_until(
        self, enough: Callable[[Settled], bool], shown: Settled, deadline_s: float, complaint: str
    ) -> Settled:
        """Look again and again until what is shown is enough.

        Raises:
            EnvError: it was not in time.
        """
        end = time.monotonic() + deadline_s
        while not enough(shown):
            if time.monotonic() >= end:
                raise EnvError(f"{self._device.serial}: {complaint} ({deadline_s:g} s)")
            shown = self._look(_LOOK_AGAIN_S)
        return shown

    def _keep(self, screen: Image, truth: Mapping[str, Any] | None) -> None:
        if truth is None:
            raise EnvError(f"{self._device.serial}: {PACKAGE} publishes no state.")
        self._screen = screen
        self._truth = {name: value for name, value in truth.items() if name not in _PRIVATE}

    def _picks(self) -> int:
        return int(self._truth["right"] + self._truth["wrong"])

    def _info(self) -> _Info:
        truth = self._truth
        return {
            **truth,
            "state_key": f"{truth['seed']}/{truth['round']}/{truth['phase']}",
            "changed": self._changed,
            "metrics": {"accuracy": truth["right"] / self.rounds, "score": truth["score"]},
        }


def _action_space(mode: str) -> "spaces.Space[Any]":
    if mode == "select":
        return spaces.Discrete(CARDS)
    return spaces.Box(0.0, 1.0, (2,), np.float32)
