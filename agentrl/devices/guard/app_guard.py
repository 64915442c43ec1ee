"""Keep an agent in the apps it may use, and tell apart who left them."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentrl.actions.screen_actions import Action, Wait, does_nothing
from agentrl.devices.device import Device, State
from agentrl.devices.foreground_window import Kind, Window
from agentrl.devices.guard.exit_attribution import By, Edges, Evidence, judge
from agentrl.devices.guard.foreground import LOOK_AGAIN_S, outside
from agentrl.devices.input.settle import Settled, act_and_settle
from agentrl.errors import AppLeft, DeviceTimeout, NotInFront, ScreenTurned
from agentrl.types import Image

log = logging.getLogger(__name__)

_COUNTED_LATE_S = 0.5
"""An app may count a touch so much later than another window has come to the front."""
_AWAY: Mapping[Kind, str] = {
    "call": "ENDCALL",
    "permission": "BACK",
    "foreign_app": "BACK",
    "system_window": "BACK",
}
"""The one key that sends a window away. Nothing is pressed on a dialog about a hung or crashed app:
its buttons end the app, and with it the game."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Left:
    """Something that is not allowed came to the front."""

    kind: Kind
    package: str
    by: By
    evidence: str

    def told(self) -> dict[str, Any]:
        """For an environment's `info["guard"]`; no frame is recorded where the agent has left."""
        told: dict[str, Any] = {
            "kind": self.kind, "package": self.package, "by": self.by, "evidence": self.evidence,
        }  # fmt: skip
        if self.by == "agent":
            told["no_frame"] = f"{self.package or self.kind} is in front"
        return told


@dataclass(slots=True, kw_only=True, frozen=True)
class Guarded:
    """What came of an action."""

    settled: Settled | None
    """The screen at rest, with an allowed app in front; None where the agent has left."""
    events: tuple[Left, ...] = ()
    """What came to the front; all but the last were the world's, and are gone again."""

    @property
    def left(self) -> bool:
        """Whether the agent has left: the episode ends with the game's lowest reward."""
        return self.settled is None


class Guard:
    """Acts on a phone for one app, and sees to it that nothing else is in front.

    The phone itself looks right before each action, so that no touch meets another app; and it is
    asked after the last capture, so that no screen of another app is taken for the game's.
    """

    def __init__(
        self,
        device: Device,
        package: str,
        allow: Iterable[str] = (),
        *,
        soon_s: float = 2.0,
        edges: Edges | None = None,
        turns: bool = True,
    ) -> None:
        """Watch over a phone.

        Args:
            device: the phone.
            package: of the app, whose published state is read.
            allow: packages that may be in front beside it.
            soon_s: for so long a touch that the app did not count can be why it was left.
            edges: where touches are the system's; None takes the usual bars.
            turns: whether the app may turn the screen. Where it does not, and the screen was
                turned while a touch was on its way, nobody knows what the touch meant.
        """
        self.package = package
        self._device = device
        self._allowed = frozenset((package, *allow))
        self._soon_s = soon_s
        self._edges = edges or Edges()
        self._turns = turns
        self._last: Settled | None = None

    def begin(self) -> None:
        """A launch is about to come: the old state means nothing, a call that waits is declined."""
        self._last = None
        window = self._device.window()
        if window.kind == "call":
            log.info("%s: a call from before is declined", self._device.serial)
            self._device.key(_AWAY["call"])
            self._until(lambda: self._device.window().kind != "call")

    def act(self, action: Action, *, before: Image, **settling: Any) -> Guarded:
        """Perform an action, wait until the screen has settled, and see what is in front.

        What the world brought to the front is sent away once; play goes on where the app is in
        front again and publishes what it did.

        Args:
            action: what to do.
            before: the screen that the action answers, uint8[H, W, 3].
            **settling: for `act_and_settle`.

        Raises:
            AppLeft: the world left the app, and it did not come back as it was.
            NotInFront: something came again where it was just sent away; nothing was touched.
            ScreenTurned: the world has turned the screen meanwhile.
            DeviceError: as `act_and_settle`.
        """
        guarded = self._act(action, before, settling)
        if guarded.settled is not None:
            if not self._turns and not does_nothing(action):
                self._check_upright(action, before, guarded.settled.frame)
            self._last = guarded.settled
        return guarded

    def _act(self, action: Action, before: Image, settling: Mapping[str, Any]) -> Guarded:
        """Three parts: what was in front before, what came with the action, how it went away."""
        earlier: tuple[Left, ...] = ()
        try:
            settled, came, evidence = self._perform(action, before, settling, self._allowed)
        except NotInFront:
            if (came := self._outside()) is not None:
                event = self._judged(came, Evidence(action=None))
                self._send_away(came, event, self._state)
                earlier = (event,)
            # The phone's own look does not know the small windows of an app, such as a menu.
            is_known = self._device.focus() in self._allowed
            only_in = self._allowed if is_known else None
            settled, came, evidence = self._perform(action, before, settling, only_in)
        if came is None:
            assert settled is not None, "an action that did not settle has met a window"
            return Guarded(settled=settled, events=earlier)
        known = settled.state if settled else self._state
        if self._may_be_counted(came, evidence) and (late := self._counted_late()) is not None:
            known, evidence = late, replace(evidence, handled=True)
        event = self._judged(came, evidence)
        if event.by == "agent":
            return Guarded(settled=None, events=(*earlier, event))
        if evidence.handled is False:
            raise self._void(event, f"{self.package} never got the touch")
        remaining = self._send_away(came, event, known, evidence)
        if remaining is not None:
            return Guarded(settled=None, events=(*earlier, event, remaining))
        settled, came, _ = self._perform(Wait(0.0), before, settling)
        if came is not None or settled is None:
            raise self._void(event, "it came again")
        return Guarded(settled=settled, events=(*earlier, event))

    @property
    def _state(self) -> State | None:
        """What the app published when the screen was last at rest."""
        return None if self._last is None else self._last.state

    def _perform(
        self,
        action: Action,
        before: Image,
        settling: Mapping[str, Any],
        only_in: Collection[str] | None = None,
    ) -> tuple[Settled | None, Window | None, Evidence]:
        """The settled screen, and the window that is in front of the app, if there is one."""
        is_known = self._last is not None and self._last.frame is before
        sent_s = time.monotonic()
        settled: Settled | None = None
        try:
            settled = act_and_settle(
                self._device,
                action,
                before=before,
                package=self.package,
                before_state=self._state if is_known else None,
                only_in=only_in,
                **settling,
            )
        except DeviceTimeout:
            window = self._outside()
            if window is None:
                raise
            counts = self._state is not None and self._device.look(self.package).state is not None
            handled, seconds = False if counts else None, time.monotonic() - sent_s
        else:
            window, handled = self._outside(), settled.handled
            seconds = _seen_s(settled, time.monotonic() - sent_s, self._allowed)
            if window is None and handled is False and settled.front is not None:
                # It took the touch, and has gone again: the screen may still be its own.
                window = Window(kind="foreign_app", package=settled.front)
        return settled, window, Evidence(action=action, handled=handled, seconds=seconds)

    def _may_be_counted(self, window: Window, evidence: Evidence) -> bool:
        """Whether the app can still count the action, and whether that would change anything."""
        if evidence.handled is not False:
            return False
        return self._judge(window, replace(evidence, handled=True))[0] == "world"

    def _counted_late(self) -> State | None:
        """What the app publishes once it has counted the last action; None if it does not."""
        known, end_s = self._state, time.monotonic() + _COUNTED_LATE_S
        while known is not None:
            now = self._device.look(self.package).state
            if now is not None and now["touches"] > known["touches"]:
                return now
            if time.monotonic() >= end_s:
                break
            time.sleep(LOOK_AGAIN_S)
        return None

    def _judge(self, window: Window, evidence: Evidence) -> tuple[By, str]:
        return judge(window, evidence, soon_s=self._soon_s, edges=self._edges)

    def _judged(self, window: Window, evidence: Evidence) -> Left:
        by, told = self._judge(window, evidence)
        log.info("%s: %s %s: %s (%s)", self._device.serial, window.kind, window.package, by, told)
        return Left(kind=window.kind, package=window.package, by=by, evidence=told)

    def _send_away(
        self, window: Window, event: Left, known: State | None, evidence: Evidence | None = None
    ) -> Left | None:
        """Press the one key that sends a window away, and see whether the app is as it was.

        Returns:
            None; or what the agent's own action has led to, if that is what lay below.

        Raises:
            AppLeft: it did not go, or the app is not as it was.
        """
        if window.kind not in _AWAY:
            raise self._void(event, "nothing is pressed on it")
        if self._outside() is not None:  # else it has gone by itself, and the app would get the key
            self._device.key(_AWAY[window.kind])
            self._until(lambda: self._device.focus() in self._allowed)
        below = self._outside()
        if below is not None and evidence is not None:
            own = self._judged(below, evidence)
            if own.by == "agent":
                return own
        if below is not None:
            raise self._void(event, f"{below.package or 'nothing'} is in front after it")
        now = self._device.look(self.package).state
        if known is not None and (now is None or _told(now) != _told(known)):
            raise self._void(event, f"{self.package} is not as it was")
        return None

    def _outside(self) -> Window | None:
        return outside(self._device, self._allowed)

    def _until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something became so, for as long as a screen may take to rest."""
        end_s = time.monotonic() + self._device.deadlines.settle_s
        while not is_so() and time.monotonic() < end_s:
            time.sleep(LOOK_AGAIN_S)

    def _check_upright(self, action: Action, before: Image, after: Image) -> None:
        if before.shape != after.shape:
            (height, width, _), (high, wide, _) = before.shape, after.shape
            raise ScreenTurned(
                f"{self._device.serial}: the screen was {width}x{height} when {action} was chosen "
                f"and is {wide}x{high} after it, and {self.package} does not turn it; lock the "
                "rotation in the phone's settings"
            )

    def _void(self, event: Left, why: str) -> AppLeft:
        of = {"anr": "the dialog that it hangs, of ", "crash": "the dialog that it crashed, of "}
        return AppLeft(
            f"{event.kind}: {self._device.serial}: {of.get(event.kind, '')}{event.package} came in "
            f"front of {self.package}, {why}; by the {event.by}: {event.evidence}"
        )


def _seen_s(settled: Settled, until_s: float, allowed: Collection[str]) -> float:
    """From the action to the first sign of what is in front; `until_s` where there was none."""
    if settled.front in allowed:
        return until_s
    if settled.handled is None and settled.effect_s is not None:
        return settled.effect_s  # it was looked at late, when the screen stood still
    return settled.front_s


def _told(state: State) -> dict[str, Any]:
    """What an app publishes of itself; a key that sends another away is counted by that one."""
    return {name: value for name, value in state.items() if name != "touches"}
