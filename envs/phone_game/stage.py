"""One game's app on one phone: started afresh, acted on under a guard, and looked at."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.devices import Device, Guard, Left, Look, Settled, Swipe, Tap, Wait
from agentrl.errors import CaptureError, EnvError
from agentrl.types import Image

LOOK_AGAIN_S = 0.05


class Stage:
    """A phone on which one app is played.

    Args:
        device: the phone.
        package: of the app.
        activity: of the app.
        allow: packages that may be in front beside it.
        settling: for every `agentrl.devices.act_and_settle`.
    """

    def __init__(
        self,
        device: Device,
        package: str,
        activity: str,
        allow: Sequence[str] = (),
        **settling: Any,
    ) -> None:
        self.device = device
        self.package = package
        width, height = device.size()
        self.screen: Image = np.zeros((height, width, 3), np.uint8)
        """What the next action answers, uint8[H, W, 3]."""
        self.events: tuple[Left, ...] = ()
        """What else came to the front in this step."""
        self.timings: dict[str, float] = {}
        """Seconds of this step: `settle`, waiting for the screen, and `effect`, to the first sign
        of the last touch, where there was one."""
        self._activity = activity
        self._settling = settling
        self._guard = Guard(device, package, allow, turns=False)

    def begin_step(self) -> None:
        """Forget what came to the front in the last step, and its timings."""
        self.events, self.timings = (), {}

    def launch(
        self,
        extras: Mapping[str, str],
        begins: Callable[[Settled], bool] = lambda shown: False,
    ) -> Settled:
        """Start the game; the first screen that is of this launch, as its state is.

        Args:
            extras: `seed` among them, which the game publishes.
            begins: whether a screen beside which nothing is published is a game's first.

        Raises:
            EnvError: the game publishes no state of this launch in time.
            CaptureError: the captures are stale.
        """
        seed = int(extras["seed"])
        self._guard.begin()
        old = self.device.look(self.package)
        self.screen = self._without_game(old)
        self.device.launch(self.package, self._activity, extras)

        def is_new(shown: Settled) -> bool:
            state = shown.state
            if state is None:
                return begins(shown)
            if state["seed"] != seed:
                return False
            return old.state is None or state["launches"] != old.state["launches"]

        serial, deadline_s = self.device.serial, self.device.deadlines.launch_s
        shown = self.look_until(
            is_new,
            self.look(),
            deadline_s,
            EnvError(
                f"{serial}: {self.package} was launched with the seed {seed} and publishes no "
                f"state of that game; can it write its file? ({deadline_s:g} s)"
            ),
        )
        return self.look_until(
            lambda shown: shown.changed,
            shown,
            deadline_s,
            CaptureError(
                f"{serial}: {self.package} was launched and the screen stayed as it was for "
                f"{deadline_s:g} s: the captures are stale"
            ),
        )

    def act(self, action: Tap | Swipe | Wait) -> Settled | None:
        """Act and wait until the screen has settled; None where the player has left the game."""
        guarded = self._guard.act(action, before=self.screen, **self._settling)
        self.events += guarded.events
        settled = guarded.settled
        if settled is not None:
            self.timings["settle"] = self.timings.get("settle", 0.0) + settled.seconds
            if settled.effect_s is not None:
                self.timings["effect"] = settled.effect_s
        return settled

    def look(self, after_s: float = 0.0) -> Settled:
        """The screen after some seconds."""
        settled = self.act(Wait(after_s))
        assert settled is not None, "who only looks does not leave"
        return settled

    def look_until(
        self, enough: Callable[[Settled], bool], shown: Settled, deadline_s: float, error: Exception
    ) -> Settled:
        """Look again and again until what is shown is enough; the error, if it is not in time."""
        end = time.monotonic() + deadline_s
        while not enough(shown):
            if time.monotonic() >= end:
                raise error
            shown = self.look(LOOK_AGAIN_S)
        return shown

    def _without_game(self, now: Look) -> Image:
        """The screen without the game: what it shows after a launch must be something else.

        Launched from its own last screen, it would show that, then what lies below, then the new
        game: captures that repeat either of the first two could not be told from the game.

        Raises:
            CaptureError: the phone does not let itself be seen.
        """
        end_s = time.monotonic() + self.device.deadlines.settle_s
        if now.front == self.package:
            self.device.stop(self.package)
        while True:
            is_late = time.monotonic() >= end_s
            if self.device.focus() != self.package or is_late:
                try:
                    return self.device.screenshot()
                except CaptureError:
                    if is_late:
                        raise
            time.sleep(LOOK_AGAIN_S)
