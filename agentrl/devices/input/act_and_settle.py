"""Performs an action on a screen and waits until its effect has settled.

If the app publishes its state, wait for the app to handle the touch. Its screen and state change
together, so any later capture shows the effect, and two equal captures show that it has settled.
Otherwise wait for a capture that differs from the screen before the action, then for a second
effect.

The app never counts an action that leaves it, such as a tap on the navigation bar. As soon as
another package is in front, that package is returned with the app's last state and the settled
screen, or the screen at the deadline. The screen from before the effect is never returned, unless
the app publishes no state and nothing changed within the deadline, as with an action that has no
effect.

A screen that never settles costs the full deadline once: `Settled.moves` reports it, and with
`moving` the next action does not wait for it to settle. `AppGuard` does both.
"""

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.actions.screen_actions import Action, Wait, touches_nothing
from agentrl.devices.device import AppState, Device
from agentrl.devices.screen_comparison import ScreenComparison
from agentrl.devices.screen_regions import STATUS_BAR, Box
from agentrl.errors import CaptureError, DeviceTimeout
from agentrl.types import Image

log = logging.getLogger(__name__)

_COUNTS = ("touches", "launches")
"""Names of an app's counters in its published state."""
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.012


@dataclass(slots=True, kw_only=True, frozen=True)
class Settled:
    """A screen that has settled after an action."""

    frame: Image
    """uint8[H, W, 3], read-only because later screens are compared with it."""
    changed: bool
    """Whether `frame` differs from the screen before the action, outside the ignored regions."""
    state: AppState | None
    """State that the app published after the action; None if it publishes none."""
    front: str | None
    """The package in front after the action; None if no `package` was given."""
    front_s: float
    """Seconds from the action to the look that found `front`."""
    handled: bool | None
    """Whether the app counted the action among its touches; None if it publishes no state."""
    seconds: float
    """Seconds from the action to the last capture."""
    effect_s: float | None
    """Seconds from the action to the first capture that differs from the screen before the action;
    None if no capture differs."""
    captures: int
    front_at_end: str | None
    """The package in front right after the last capture; None if unknown."""
    moves: bool
    """Whether the screen changes on its own, as far as the captures show; pass it as `moving` for
    the next action."""


def act_and_settle(
    device: Device,
    action: Action,
    *,
    before: Image,
    package: str | None = None,
    settle_s: float | None = None,
    mask_top: float = STATUS_BAR,
    ignore: Sequence[Box] = (),
    min_captures: int = 2,
    quiet_s: float = 0.3,
    state_shows: bool = False,
    before_state: AppState | None = None,
    only_in: Collection[str] | None = None,
    moving: bool = False,
    effect_within_s: float = 0.5,
) -> Settled:
    """Perform an action and wait until its effect has settled, as this module describes.

    Args:
        device: the phone.
        action: the action to perform.
        before: the screen that the action responds to, uint8[H, W, 3].
        package: the app whose published state is read; None reads no state.
        settle_s: overall deadline, in addition to the seconds of a Wait; None uses the device's.
        mask_top: fraction of the height to ignore at the top: the status bar with its clock.
        ignore: more regions to ignore, such as an app's own clock or a blinking cursor.
        min_captures: minimum number of captures.
        quiet_s: how long to wait for a second effect if the app publishes nothing.
        state_shows: whether every new state is visible, so that an unchanged screen means a stale
            capture.
        before_state: the state when `before` was taken; None reads it before the action.
        only_in: packages; the action is performed only if one of them is in front. None always
            performs it.
        moving: whether the screen never settles, so that the first capture after the action was
            handled is returned.
        effect_within_s: seconds to wait for an effect on a moving screen whose app publishes
            nothing.

    Raises:
        AppNotInFront: no package of `only_in` was in front; nothing was done.
        CaptureError: no capture succeeded in time, or the captures are stale.
        DeviceTimeout: the touch was not handled in time, or with `state_shows` nothing settled.
    """
    settle_s = device.deadlines.settle_s if settle_s is None else settle_s
    waits_s = action.seconds if isinstance(action, Wait) else 0.0
    watch = _ScreenWatch(
        device,
        before,
        waits_s + settle_s,
        comparison=ScreenComparison(mask_top, ignore),
        min_captures=1 if moving else min_captures,
        asks_front=package is not None,
    )
    done = _send_action(watch, action, package, before_state, only_in)
    if moving and not done.left:
        frame = _capture_moving(watch, action, done, effect_within_s)
    else:
        frame = _wait_for_effect(watch, action, done, quiet_s, state_shows)
    return watch.settled(frame, _with_front(watch, action, done, package))


class _ScreenWatch:
    """Captures and deadline of one wait for the screen to settle."""

    def __init__(
        self,
        device: Device,
        before: Image,
        settle_s: float,
        *,
        comparison: ScreenComparison,
        min_captures: int = 2,
        asks_front: bool = False,
    ) -> None:
        self.device = device
        self.before = before
        self.settle_s = settle_s
        self.captures = 0
        self.effect_s: float | None = None
        """Seconds from the start to the first capture that differs from `before`; None if no
        capture does."""
        self._same = comparison.matches
        self.next_capture: Image | None = None
        """Capture made since the start but not used yet; `capture` returns it next."""
        self.is_still = True
        """Whether the screen has settled, as far as the captures show."""
        self.front: str | None = None
        """The package in front right after the last capture, if known."""
        # If `asks_front`, each capture that may be the last also reads the package in front.
        self._min_captures = min_captures
        self._asks_front = asks_front
        self._start = time.monotonic()
        self._pause_s = _FIRST_PAUSE_S

    def capture(self) -> Image:
        """Capture the screen, retrying on failure until the deadline."""
        self.captures += 1
        while (frame := self._try()) is None:
            self.pause("")
        if self.effect_s is None and self.differs(frame):
            self.effect_s = self.elapsed_s()
        return frame

    def differs(self, frame: Image) -> bool:
        """Return whether a capture differs from the screen before the action."""
        return not self._same(self.before, frame)

    def until_still(self, frame: Image, *, or_last: bool = False) -> Image:
        """Return the first capture equal to the one before it.

        If the deadline passes first, return the last capture with `or_last`, else raise.
        """
        while True:
            following = self.capture()
            still = self.captures >= self._min_captures and self._same(frame, following)
            if still or (or_last and self.elapsed_s() >= self.settle_s):
                self.is_still = still
                return following
            self.pause(f"{self.device.serial}: the screen did not settle")
            frame = following

    def until_changed_and_still(self, *, or_last: bool = False) -> Image:
        """Wait until the screen has changed and settled; return it unchanged at the deadline."""
        frame = self.capture()
        while self.effect_s is None:
            if self.elapsed_s() >= self.settle_s:
                return frame
            self.pause("")
            frame = self.capture()
        return self.until_still(frame, or_last=or_last)

    def until_quiet(self, frame: Image, quiet_s: float) -> Image:
        """Return the screen once it has not changed for `quiet_s`, or at the deadline."""
        end_s = self.elapsed_s() + quiet_s
        while self.elapsed_s() < min(end_s, self.settle_s):
            self.pause("")
            following = self.capture()
            # A further effect restarts the wait.
            if not self._same(frame, following):
                following = self.until_still(following, or_last=True)
                end_s = self.elapsed_s() + quiet_s
            frame = following
        return frame

    def pause(self, failure: str) -> None:
        """Pause before the next capture; past the deadline, raise `failure` unless it is empty."""
        if failure and self.elapsed_s() >= self.settle_s:
            raise DeviceTimeout(f"{failure} within {self.settle_s:g} s")
        time.sleep(self._pause_s)
        # Most effects come within milliseconds, so poll less often for late ones.
        self._pause_s = min(self._pause_s * 1.5, _LONGEST_PAUSE_S)

    def _try(self) -> Image | None:
        may_be_last = self._asks_front and self.captures >= self._min_captures
        made, self.next_capture, self.front = self.next_capture, None, None
        try:
            if may_be_last:
                frame, self.front = self.device.screenshot_and_front()
                return frame
            return self.device.screenshot() if made is None else made
        except CaptureError as error:
            if self.elapsed_s() >= self.settle_s:
                raise
            log.info("%s", error)  # a black screen during a transition, or a lost connection
            return None

    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def settled(self, frame: Image, done: "_Handled") -> Settled:
        """Return the result of the wait, with its last capture."""
        frame.flags.writeable = False
        return Settled(
            frame=frame,
            changed=self.differs(frame),
            state=done.state,
            front=done.front,
            front_s=done.front_s,
            handled=done.handled,
            seconds=self.elapsed_s(),
            effect_s=self.effect_s,
            captures=self.captures,
            front_at_end=self.front,
            moves=not self.is_still,
        )


@dataclass(slots=True, kw_only=True, frozen=True)
class _Handled:
    """Effects of an action that are known before the screen is captured."""

    state: AppState | None = None
    """The app's last published state; None if it publishes none."""
    front: str | None = None
    front_s: float = 0.0
    changed: bool = False
    """Whether the published state changed, apart from its counts."""
    handled: bool | None = None
    left: bool = False
    """Whether another package came to the front before the app handled the action."""


def _send_action(
    watch: _ScreenWatch,
    action: Action,
    package: str | None,
    known: AppState | None,
    only_in: Collection[str] | None,
) -> _Handled:
    """Perform the action and wait until the app has handled it or another package is in front."""
    device = watch.device
    if package is None:
        device.perform(action)
        return _Handled()
    before, now = device.send_action(action, package, only_in)
    known = known or before.state
    changed, front_s = _differs(known, now.state), watch.elapsed_s()
    if touches_nothing(action):  # there is nothing to count
        return _Handled(state=now.state, front=now.front, front_s=front_s, changed=changed)
    if before.state is None:
        return _Handled()
    # Wait for the touch count, because many touches change nothing else in the state.
    while now.state is not None and now.state["touches"] <= before.state["touches"]:
        if now.front not in (None, package):
            # Look again, because the app may have handled the action since the last look.
            state = device.look(package).state or now.state
            front_s = watch.elapsed_s()
            return _Handled(state=state, front=now.front, front_s=front_s, handled=False, left=True)
        watch.pause(f"{device.serial}: {package} did not handle {action}")
        now = device.look(package)
    if now.state is None:
        return _Handled()
    changed, front_s = _differs(known, now.state), watch.elapsed_s()
    watch.next_capture = now.screen  # captured along with the look
    return _Handled(
        state=now.state, front=now.front, front_s=front_s, handled=True, changed=changed
    )


def _capture_moving(
    watch: _ScreenWatch, action: Action, done: _Handled, effect_within_s: float
) -> Image:
    """Capture a screen that never settles, once, because more captures would show nothing new."""
    if done.state is None and not touches_nothing(action):
        time.sleep(effect_within_s)
    frame = watch.capture()
    watch.is_still = not watch.differs(frame)
    return frame


def _wait_for_effect(
    watch: _ScreenWatch, action: Action, done: _Handled, quiet_s: float, state_shows: bool
) -> Image:
    """Return the settled screen, waiting according to what is known about the action."""
    if done.left:  # the other app's screen may never settle
        return watch.until_changed_and_still(or_last=True)
    if done.state is not None or touches_nothing(action):
        frame = watch.until_still(watch.capture(), or_last=not state_shows)
        # Equal captures may predate the effect, which must become visible as the state changed.
        if state_shows and done.changed and not watch.differs(frame):
            frame = watch.until_changed_and_still()
            if watch.effect_s is None:
                raise CaptureError(
                    f"{watch.device.serial}: the captures are stale; the app published a new state "
                    f"{watch.elapsed_s():.1f} s ago, but its screen did not change"
                )
        return frame
    # An app that publishes no state may show the press first and its effect some time later.
    frame = watch.until_changed_and_still(or_last=not state_shows)
    return frame if watch.effect_s is None else watch.until_quiet(frame, quiet_s)


def _with_front(
    watch: _ScreenWatch, action: Action, done: _Handled, package: str | None
) -> _Handled:
    """Find the package in front if only that can show whether the agent is still in the app."""
    if done.state is not None or done.left or touches_nothing(action):
        return done
    front = watch.device.focus() if package is not None else None
    return _Handled(front=front, front_s=watch.elapsed_s())


def _differs(known: AppState | None, now: AppState | None) -> bool:
    """Return whether the app's state changed apart from its counters, which count every touch."""

    def own(state: AppState) -> dict[str, Any]:
        return {name: value for name, value in state.items() if name not in _COUNTS}

    return known is not None and now is not None and own(known) != own(now)
