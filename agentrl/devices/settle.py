"""Do something on a screen, and wait for what comes of it by looking."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cv2

from agentrl.devices.actions import Action, Wait, input_command, perform
from agentrl.devices.protocol import Device, Result
from agentrl.devices.window import WINDOW, package_in
from agentrl.errors import DeviceError, DeviceTimeout
from agentrl.phone.app import state_path
from agentrl.types import Image

State = Mapping[str, Any]

_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.012
_TOLERANCE = 8
"""Largest difference of a channel that is still the same picture."""
_BAND = 128
"""Rows that are compared at once: what follows the first difference is not looked at."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Settled:
    """A screen that has come to rest after an action."""

    frame: Image
    """uint8[H, W, 3]"""
    changed: bool
    """Whether it differs from the screen before, the status bar apart."""
    state: State | None
    """What the app published after the action; None where it publishes nothing."""
    front: str | None
    """The package in front after the action; None where no package was asked about."""
    seconds: float
    """From the action to the last capture."""
    captures: int


def act_and_settle(
    device: Device,
    action: Action,
    *,
    before: Image,
    package: str | None = None,
    settle_s: float | None = None,
    mask_top: float = 1 / 26,
) -> Settled:
    """Perform an action and wait until its effect stands still on the screen.

    Where the app publishes its state, the wait is for the app to have handled the touch: its
    picture and its state change together, so every capture after that shows the effect, and two
    that agree show it at rest. Elsewhere the wait is for a picture that differs from `before`.
    An action that leaves the app, such as a tap on the navigation bar, is handled by nobody who
    publishes it: as soon as something else is in front, `front` says so, beside the app's last
    state and the screen as it rests, or as it is at the deadline where it never does.
    The screen from before the effect is never returned, but for an app that publishes nothing and
    shows nothing new within the deadline: that is what an action without effect looks like.

    Args:
        device: the phone.
        action: what to do.
        before: the screen that the action answers, uint8[H, W, 3].
        package: of the app whose published state is read; None reads none.
        settle_s: deadline of the whole, a wait's own seconds apart; None takes the device's own.
        mask_top: share of the height that is not compared: the status bar with its clock.

    Raises:
        DeviceTimeout: the app is in front but did not handle the touch in time, or its screen
            never stood still.
        DeviceError: the phone failed.
    """
    settle_s = device.deadlines.settle_s if settle_s is None else settle_s
    waits_s = action.seconds if isinstance(action, Wait) else 0.0
    watch = _Watch(device, before, waits_s + settle_s)
    watch.mask_top = mask_top
    done = _act(watch, action, package)
    if done.left:
        return watch.result(watch.until_changed_and_still(or_last=True), done.state, done.front)
    if done.state is not None or isinstance(action, Wait):
        return watch.result(watch.until_still(watch.capture()), done.state, done.front)
    frame = watch.until_changed_and_still()
    return watch.result(frame, None, device.focus() if package is not None else None)


def read_state(device: Device, package: str) -> State | None:
    """What an app publishes now; None where it publishes nothing that counts touches.

    Raises:
        DeviceError: the phone failed.
    """
    return _read(device.batch(_look(package))[0])


@dataclass(slots=True, kw_only=True, frozen=True)
class _Done:
    """What is known of an action before the screen has been looked at."""

    state: State | None = None
    """What the app published last; None if it publishes none."""
    front: str | None = None
    left: bool = False
    """Whether something else came to the front before the app handled the action."""


class _Watch:
    """The captures of one settling and their deadline."""

    def __init__(self, device: Device, before: Image, settle_s: float) -> None:
        self.device = device
        self.before = before
        self.settle_s = settle_s
        self.mask_top = 0.0
        self.captures = 0
        self._start = time.monotonic()
        self._pause_s = _FIRST_PAUSE_S

    def capture(self) -> Image:
        """One more look."""
        self.captures += 1
        return self.device.screenshot()

    def until_still(self, frame: Image, *, or_last: bool = False) -> Image:
        """The first capture that agrees with the one before it; or the last one in time."""
        while True:
            following = self.capture()
            if self._same(frame, following) or (or_last and self._past() >= self.settle_s):
                return following
            self.pause(f"{self.device.serial}: the screen did not stand still")
            frame = following

    def until_changed_and_still(self, *, or_last: bool = False) -> Image:
        """As `until_still`, of a changed screen; the unchanged one if none comes in time."""
        frame = self.capture()
        while self._same(self.before, frame):
            if self._past() >= self.settle_s:
                return frame
            self.pause("")
            frame = self.capture()
        return self.until_still(frame, or_last=or_last)

    def pause(self, complaint: str) -> None:
        """A short pause before looking again, a little longer each time.

        Raises:
            DeviceTimeout: the deadline has passed and there is a complaint.
        """
        if complaint and self._past() >= self.settle_s:
            raise DeviceTimeout(f"{complaint} within {self.settle_s:g} s")
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 1.5, _LONGEST_PAUSE_S)

    def result(self, frame: Image, state: State | None, front: str | None) -> Settled:
        """What came of it."""
        return Settled(
            frame=frame,
            changed=not self._same(self.before, frame),
            state=state,
            front=front,
            seconds=self._past(),
            captures=self.captures,
        )

    def _past(self) -> float:
        return time.monotonic() - self._start

    def _same(self, one: Image, other: Image) -> bool:
        if one.shape != other.shape:
            return False
        bands = range(round(one.shape[0] * self.mask_top), one.shape[0], _BAND)
        rows = (slice(top, top + _BAND) for top in bands)
        return all(cv2.norm(one[r], other[r], cv2.NORM_INF) <= _TOLERANCE for r in rows)


def _act(watch: _Watch, action: Action, package: str | None) -> _Done:
    """Perform the action and wait until the app has handled it, or something else is in front."""
    device = watch.device
    if package is None or isinstance(action, Wait):
        perform(device, action)
        return _Done() if package is None else _state_and_front(device, package)
    command, look = input_command(action, device.size()), _look(package)
    first, done, last, window = device.batch(look, command, look, WINDOW)
    if done.code:
        raise DeviceError(f"{device.serial}: {' '.join(command)} failed: {done.output.strip()}")
    old, new = _read(first), _read(last)
    if old is None:
        return _Done()
    while new is not None and new["touches"] <= old["touches"]:
        front = _front(device, window)
        if front not in (None, package):
            # Once more: it may have handled the action after it was looked at.
            return _Done(state=read_state(device, package) or new, front=front, left=True)
        watch.pause(f"{device.serial}: {package} did not handle {' '.join(command)}")
        last, window = device.batch(look, WINDOW)
        new = _read(last)
    return _Done() if new is None else _Done(state=new, front=_front(device, window))


def _state_and_front(device: Device, package: str) -> _Done:
    look, window = device.batch(_look(package), WINDOW)
    return _Done(state=_read(look), front=_front(device, window))


def _front(device: Device, window: Result) -> str | None:
    if window.code:
        raise DeviceError(f"{device.serial}: {' '.join(WINDOW)} failed: {window.output.strip()}")
    return package_in(window.output)


def _look(package: str) -> tuple[str, ...]:
    return ("cat", state_path(package))


def _read(result: Result) -> State | None:
    """A published state; None where there is none or it does not count touches."""
    try:
        state = json.loads(result.output) if not result.code else None
    except ValueError:  # caught in the middle of a write
        return None
    return state if isinstance(state, dict) and "touches" in state else None
