"""Do something on a screen, and wait for what comes of it by looking."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.actions.screen_actions import Action, Wait, does_nothing, perform
from agentrl.devices.device import Device, State
from agentrl.devices.input.screen_watch import Watch, without_what_moves
from agentrl.devices.screen_regions import STATUS_BAR, Box, Comparison
from agentrl.errors import CaptureError
from agentrl.types import Image

_COUNTS = ("touches", "launches")


@dataclass(slots=True, kw_only=True, frozen=True)
class Settled:
    """A screen that has come to rest after an action."""

    frame: Image
    """uint8[H, W, 3], read-only: it is what later screens are compared with."""
    changed: bool
    """Whether it differs from the screen before, what is not compared apart."""
    state: State | None
    """What the app published after the action; None where it publishes nothing."""
    front: str | None
    """The package in front after the action; None where no package was asked about."""
    front_s: float
    """From the action to the look that told so."""
    handled: bool | None
    """Whether the app counted the action among its touches; None where it publishes none."""
    seconds: float
    """From the action to the last capture."""
    effect_s: float | None
    """From the action to the first capture that differs from the screen before; None if none."""
    captures: int


def act_and_settle(
    device: Device,
    action: Action,
    *,
    before: Image,
    package: str | None = None,
    settle_s: float | None = None,
    mask_top: float = STATUS_BAR,
    ignore: Sequence[Box] = (),
    watch_s: float = 0.0,
    min_captures: int = 2,
    quiet_s: float = 0.3,
    state_shows: bool = False,
    before_state: State | None = None,
    only_in: Collection[str] | None = None,
    moving: bool = False,
) -> Settled:
    """Perform an action and wait until its effect stands still on the screen.

    Where the app publishes its state, the wait is for the app to have handled the touch: its
    picture and its state change together, so every capture after that shows the effect, and two
    that agree show it at rest. Elsewhere the wait is for a picture that differs from `before`,
    and then for a time in which no second effect follows.
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
        ignore: more regions that are not compared, such as an app's own clock.
        watch_s: how long to watch the screen before the action: small regions that move meanwhile
            (a cursor blinks once a second) are not compared; 0 leaves that out.
        min_captures: so many are taken at least.
        quiet_s: how long a second effect may come after the first, in an app that publishes
            nothing.
        state_shows: whether every change of what the app publishes shows on its screen: then a
            picture that stays as it was beside a state that did not is a stale capture.
        before_state: what the app published when `before` was taken; None takes what it publishes
            right before the action.
        only_in: packages; the action is only done if one of them is in front. None: always.
        moving: whether the app moves by itself, and its screen never rests: then the first capture
            after it has handled the action is given, or after the action where it publishes
            nothing.

    Raises:
        NotInFront: another package was in front than one of `only_in`, and nothing was done.
        CaptureError: no capture came in time, or they are stale.
        DeviceTimeout: the app is in front but did not handle the touch in time, or its screen
            never stood still.
        DeviceError: the phone failed.
    """
    settle_s = device.deadlines.settle_s if settle_s is None else settle_s
    waits_s = action.seconds if isinstance(action, Wait) else 0.0
    comparison = without_what_moves(device, before, Comparison(mask_top, ignore), watch_s)
    watch = Watch(
        device, before, waits_s + settle_s, comparison=comparison, min_captures=min_captures
    )
    done = _act(watch, action, package, before_state, only_in)
    if done.left:
        return _settled(watch, watch.until_changed_and_still(or_last=True), done)
    if moving:
        frame = watch.capture()
    elif done.state is not None or does_nothing(action):
        frame = watch.until_still(watch.capture())
        if state_shows and done.news and not watch.differs(frame):
            frame = _until_shown(watch)
    else:
        frame = watch.until_changed_and_still()
        if watch.effect_s is not None:
            frame = watch.until_quiet(frame, quiet_s)
    if done.state is None and not does_nothing(action):
        front = device.focus() if package is not None else None
        done = _Handled(front=front, front_s=watch.past_s())
    return _settled(watch, frame, done)


@dataclass(slots=True, kw_only=True, frozen=True)
class _Handled:
    """What is known of an action before the screen has been looked at."""

    state: State | None = None
    """What the app published last; None if it publishes none."""
    front: str | None = None
    front_s: float = 0.0
    news: bool = False
    """Whether the app published something new, the count of its touches apart."""
    handled: bool | None = None
    left: bool = False
    """Whether something else came to the front before the app handled the action."""


def _act(
    watch: Watch,
    action: Action,
    package: str | None,
    known: State | None,
    only_in: Collection[str] | None,
) -> _Handled:
    """Perform the action and wait until the app has handled it, or something else is in front."""
    device = watch.device
    if package is None:
        perform(device, action)
        return _Handled()
    before, now = device.act(action, package, only_in)
    known = known or before.state
    if does_nothing(action):
        # There is nothing to count.
        news = _is_news(known, now.state)
        return _Handled(state=now.state, front=now.front, front_s=watch.past_s(), news=news)
    if before.state is None:
        return _Handled()
    while now.state is not None and now.state["touches"] <= before.state["touches"]:
        if now.front not in (None, package):
            # Once more: it may have handled the action after it was looked at.
            state = device.look(package).state or now.state
            front_s = watch.past_s()
            return _Handled(state=state, front=now.front, front_s=front_s, handled=False, left=True)
        watch.pause(f"{device.serial}: {package} did not handle {action}")
        now = device.look(package)
    if now.state is None:
        return _Handled()
    news = _is_news(known, now.state)
    front_s = watch.past_s()
    return _Handled(state=now.state, front=now.front, front_s=front_s, handled=True, news=news)


def _until_shown(watch: Watch) -> Image:
    """The screen when it shows what the app has published.

    Raises:
        CaptureError: it does not in time.
    """
    frame = watch.until_changed_and_still()
    if watch.effect_s is None:
        raise CaptureError(
            f"{watch.device.serial}: the app published something new {watch.past_s():.1f} s ago "
            "and its screen stayed as it was: the captures are stale"
        )
    return frame


def _without_counts(state: State) -> dict[str, Any]:
    """What an app publishes of itself, and not of how the phone was used."""
    return {name: value for name, value in state.items() if name not in _COUNTS}


def _is_news(known: State | None, now: State | None) -> bool:
    if known is None or now is None:
        return False
    return _without_counts(known) != _without_counts(now)


def _settled(watch: Watch, frame: Image, done: _Handled) -> Settled:
    frame.flags.writeable = False
    return Settled(
        frame=frame,
        changed=watch.differs(frame),
        state=done.state,
        front=done.front,
        front_s=done.front_s,
        handled=done.handled,
        seconds=watch.past_s(),
        effect_s=watch.effect_s,
        captures=watch.captures,
    )
