"""An app on a phone: launch it, act on it under a guard, and observe its screen."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agentrl.devices import Action, AppExit, AppGuard, Device, Look, Settled, Wait
from agentrl.errors import CaptureError, EnvError
from agentrl.types import Image

LOOK_AGAIN_S = 0.05


class AppSession:
    """A phone and the app that the agent uses on it.

    Packages in `allow` may be in front, too; `settling` are arguments of `act_and_settle`.
    """

    def __init__(
        self,
        device: Device,
        package: str,
        allow: Sequence[str] = (),
        **settling: Any,
    ) -> None:
        self.device = device
        self.package = package
        width, height = device.size()
        self.screen: Image = np.zeros((height, width, 3), np.uint8)
        """The screen that the next action responds to, uint8[H, W, 3]."""
        self.events: tuple[AppExit, ...] = ()
        """Other windows that came to the front in this step."""
        self.timings: dict[str, float] = {}
        """Seconds of this step: `settle` until the screen settled, and `effect` until the first
        visible effect of the last touch, if there was one."""
        self._settling = settling
        self._observed: Image | None = None
        self._guard = AppGuard(device, package, allow, may_rotate=False)

    def begin_step(self) -> None:
        """Clear the events and timings of the last step."""
        self.events, self.timings = (), {}

    def observation(self, *, shared: bool) -> Image:
        """Return the screen; unless `shared`, as a new array even if it has not changed.

        Gymnasium forbids returning the same array twice.
        """
        if self.screen is self._observed and not shared:
            return self.screen.copy()
        self._observed = self.screen
        return self.screen

    def launch(
        self,
        start: Callable[[], None],
        is_new: Callable[[Settled, Look], bool] = lambda shown, old: True,
        *,
        failure: str = "",
        advice: str = "",
    ) -> Settled:
        """Start the app and wait for the first screen that belongs to this launch.

        Args:
            start: starts the app.
            is_new: returns whether a screen, with the state published by the app, belongs to this
                launch, given the look from before it; by default `start` waits until it does.
            failure: what did not happen if no screen is new, for messages.
            advice: what to check in that case.

        Raises:
            EnvError: no screen of this launch came in time.
            CaptureError: the captures are stale.
        """
        self._guard.begin()
        old = self.device.look(self.package)
        self.screen = self._without_app(old)
        start()
        serial, deadline_s = self.device.serial, self.device.deadlines.launch_s
        # Wait for the state of this launch first, then for a screen that shows it.
        shown = self.look_until(
            lambda shown: is_new(shown, old),
            self.look(),
            deadline_s,
            EnvError(f"{serial}: {failure} within {deadline_s:g} s; {advice}"),
        )
        shown = self.look_until(
            lambda shown: shown.changed,
            shown,
            deadline_s,
            CaptureError(
                f"{serial}: {self.package} was launched, but the screen did not change for "
                f"{deadline_s:g} s, so the captures are stale"
            ),
        )
        self.screen = shown.frame
        return shown

    def act(self, action: Action) -> Settled | None:
        """Act, wait for the screen to settle and return it; None if the agent left the app."""
        guarded = self._guard.perform(action, before=self.screen, **self._settling)
        self.events += guarded.events
        settled = guarded.settled
        if settled is not None:
            self.timings["settle"] = self.timings.get("settle", 0.0) + settled.seconds
            if settled.effect_s is not None:
                self.timings["effect"] = settled.effect_s
        return settled

    def look(self, after_s: float = 0.0) -> Settled:
        """Return the settled screen after some seconds."""
        settled = self.act(Wait(after_s))
        assert settled is not None, "waiting cannot leave the app"
        return settled

    def look_until(
        self, enough: Callable[[Settled], bool], shown: Settled, deadline_s: float, error: Exception
    ) -> Settled:
        """Poll the screen until `enough` accepts it; raise `error` after the deadline."""
        end = time.monotonic() + deadline_s
        while not enough(shown):
            if time.monotonic() >= end:
                raise error
            shown = self.look(LOOK_AGAIN_S)
        return shown

    def _without_app(self, now: Look) -> Image:
        """Stop the app and capture the screen without it, so that a launch visibly changes it.

        If the app were launched from its own last screen, the captures would show that screen,
        then the one below, then the new one; a stale capture of the first two could not be
        distinguished from the new one.
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
