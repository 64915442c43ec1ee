"""Keeps an agent in its app, and attributes each exit to the agent or to the world."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentrl.actions.screen_actions import Action, Key, Wait, touches_nothing
from agentrl.config.device_settings import check_allowed
from agentrl.devices.device import AppState, Device, Window, WindowKind
from agentrl.devices.guard.exit_attribution import ExitCause, ExitEvidence, attribute_exit
from agentrl.devices.guard.foreground import LOOK_AGAIN_S, foreign_window, is_allowed
from agentrl.devices.input.act_and_settle import Settled, act_and_settle
from agentrl.devices.readiness import why_dark
from agentrl.devices.screen_comparison import ScreenComparison
from agentrl.devices.screen_regions import STATUS_BAR
from agentrl.errors import (
    AppLeft,
    AppNotInFront,
    CaptureError,
    DeviceError,
    DeviceOffline,
    DeviceTimeout,
    LeaseLost,
    ScreenRotated,
)
from agentrl.types import Image

log = logging.getLogger(__name__)

_LATE_COUNT_S = 0.5
"""How long an app may still count a touch after another window came to the front (seconds)."""
_DISMISS_KEYS: Mapping[WindowKind, str] = {
    "call": "ENDCALL",
    "permission": "BACK",
    "install": "BACK",
    "update": "HOME",
    "foreign_app": "BACK",
    "system_window": "BACK",
}
"""Key that dismisses each kind of window. No key is pressed on a dialog about a hung or crashed
app, because its buttons end the app, and with it the game."""
_LAUNCHABLE = "android.intent.category.LAUNCHER"


@dataclass(slots=True, kw_only=True, frozen=True)
class AppExit:
    """A window that is not allowed came to the front."""

    kind: WindowKind
    package: str
    by: ExitCause
    evidence: str

    def to_info(self) -> dict[str, Any]:
        """Return the environment's `info["guard"]`; it hides the frame if the agent left."""
        info: dict[str, Any] = {
            "kind": self.kind, "package": self.package, "by": self.by, "evidence": self.evidence,
        }  # fmt: skip
        if self.by == "agent":
            info["no_frame"] = f"{self.package or self.kind} is in front"
        return info


@dataclass(slots=True, kw_only=True, frozen=True)
class GuardedResult:
    """The outcome of a guarded action."""

    settled: Settled | None
    """The settled screen, with an allowed app in front; None if the agent left."""
    events: tuple[AppExit, ...] = ()
    """Windows that came to the front; all but the last came from the world and were dismissed."""

    @property
    def left(self) -> bool:
        """Whether the agent left the app, which ends the episode with the lowest reward."""
        return self.settled is None


class AppGuard:
    """Performs actions on a phone while making sure that only allowed apps are in front.

    The phone itself checks right before each action, so that no touch reaches another app, and the
    foreground is checked after the last capture, so that no other app's screen is returned.
    """

    def __init__(
        self,
        device: Device,
        package: str,
        allow: Iterable[str] = (),
        *,
        soon_s: float = 2.0,
        may_rotate: bool = True,
    ) -> None:
        """Guard one app on one phone.

        Args:
            device: the phone.
            package: the app, whose published state is read; or `package/activity-prefix`, such as
                `com.tencent.mm/.plugin.appbrand.ui.AppBrandUI`, if only some of its activities are
                the game.
            allow: other packages, or `package/activity-prefix`, that may be in front.
            soon_s: how long after an uncounted touch leaving the app is attributed to that touch
                (seconds).
            may_rotate: whether the app may rotate the screen. If it may not and the screen rotates
                during an action, the position of the touch is meaningless.
        """
        self.package = package.partition("/")[0]
        self._device = device
        self._allowed = frozenset(check_allowed(entry) for entry in (package, *allow))
        self._soon_s = soon_s
        self._may_rotate = may_rotate
        self._last: Settled | None = None
        self._moves = False
        """Whether the screen moved on its own after the last action."""

    def begin(self) -> None:
        """Prepare for a launch: forget the old state, and decline an incoming call."""
        self._last, self._moves = None, False
        window = self._device.window()
        if window.kind == "call":
            log.info("%s: declining a call from before the launch", self._device.serial)
            self._device.perform(Key(_DISMISS_KEYS["call"]))
            self._wait_until(lambda: self._device.window().kind != "call")

    def perform(self, action: Action, *, before: Image, **settling: Any) -> GuardedResult:
        """Perform an action, wait until the screen has settled, and check what is in front.

        A window that came from the world is dismissed once; the episode continues if the app is
        then in front again with an unchanged state.

        Args:
            action: the action to perform.
            before: the screen that the action responds to, uint8[H, W, 3].
            **settling: passed to `act_and_settle`. Without `moving`, a screen that never settles
                costs the deadline once; later actions do not wait for it to settle while it keeps
                changing between actions.

        Raises:
            AppLeft: the world covered the app, and the app did not come back unchanged.
            AppNotInFront: a dismissed window came back; nothing was touched.
            ScreenRotated: the screen rotated during the action, and the app does not rotate it.
            DeviceError: see `act_and_settle`.
        """
        if "moving" not in settling:
            settling["moving"] = self._moves and self._still_moves(before, settling)
        guarded = self._perform_guarded(action, before, settling)
        if guarded.settled is not None:
            self._moves = guarded.settled.moves
            (height, width, _), (high, wide, _) = before.shape, guarded.settled.frame.shape
            rotated = (width, height) != (wide, high)
            if rotated and not self._may_rotate and not touches_nothing(action):
                raise ScreenRotated(
                    f"{self._device.serial}: the screen was {width}x{height} when {action} was "
                    f"chosen and is {wide}x{high} after it, but {self.package} does not rotate it; "
                    "lock the rotation in the phone's settings"
                )
            self._last = guarded.settled
        return guarded

    def _still_moves(self, before: Image, settling: Mapping[str, Any]) -> bool:
        """Return whether the screen has changed on its own since a capture before the action."""
        ignored = settling.get("mask_top", STATUS_BAR), settling.get("ignore", ())
        try:
            return not ScreenComparison(*ignored).matches(before, self._device.screenshot())
        except CaptureError:  # the screen is black during a transition
            return True

    def _perform_guarded(
        self, action: Action, before: Image, settling: Mapping[str, Any]
    ) -> GuardedResult:
        """Dismiss windows in front, perform the action, and dismiss windows that came with it."""
        earlier: tuple[AppExit, ...] = ()
        # Windows in front before the action is sent came from the world.
        try:
            settled, window, evidence = self._settle_in_app(action, before, settling, self._allowed)
        except AppNotInFront:
            if (window := self._foreign_window()) is not None:
                event = self._exit_event(window, ExitEvidence(action=None))
                self._dismiss(window, event, self._state)
                earlier = (event,)
            # The check on the phone does not recognize an app's popups, such as a menu.
            is_known = is_allowed(self._device.focus(), self._allowed)
            only_in = self._allowed if is_known else None
            settled, window, evidence = self._settle_in_app(action, before, settling, only_in)
        if window is None:
            assert settled is not None, "without a window in front, the action must have settled"
            return GuardedResult(settled=settled, events=earlier)
        known = settled.state if settled else self._state
        # The count may arrive after the window; in that case the touch did not cause the exit.
        if (late := self._late_count(window, evidence)) is not None:
            known, evidence = late, replace(evidence, handled=True)
        event = self._exit_event(window, evidence)
        if event.by == "agent":
            return GuardedResult(settled=None, events=(*earlier, event))
        if evidence.handled is False:
            raise self._app_left(event, f"and {self.package} never received the touch")
        remaining = self._dismiss(window, event, known, evidence)
        if remaining is not None:
            return GuardedResult(settled=None, events=(*earlier, event, remaining))
        # The effect of the action is visible only now that the window is gone.
        settled, window, _ = self._settle_in_app(Wait(0.0), before, settling)
        if window is not None or settled is None:
            raise self._app_left(event, "and it came back after it was dismissed")
        return GuardedResult(settled=settled, events=(*earlier, event))

    @property
    def _state(self) -> AppState | None:
        """Return the state that the app published when the screen last settled."""
        return None if self._last is None else self._last.state

    def _settle_in_app(
        self,
        action: Action,
        before: Image,
        settling: Mapping[str, Any],
        only_in: Collection[str] | None = None,
    ) -> tuple[Settled | None, Window | None, ExitEvidence]:
        """Return the settled screen, the window that covers the app, if any, and the evidence."""
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
        except DeviceTimeout as silence:
            window = self._foreign_window_after(silence)
            if window is None:
                raise
            # Only an app that counts touches can be known not to have received a touch.
            counts = self._state is not None and self._device.look(self.package).state is not None
            handled, seconds = False if counts else None, time.monotonic() - sent_s
        else:
            is_in_front = is_allowed(settled.front_at_end, self._allowed)
            window, handled = None if is_in_front else self._foreign_window(), settled.handled
            seconds = _time_to_front_s(settled, time.monotonic() - sent_s, self._allowed)
            if window is None and handled is False and settled.front is not None:
                # Another app took the touch and went away; the screen may still be that app's.
                window = Window(kind="foreign_app", package=settled.front)
        if window is not None and (window.kind, window.package) == ("foreign_app", self.package):
            handled = None  # the game shares its count with the app's other activities
        return settled, window, ExitEvidence(action=action, handled=handled, seconds=seconds)

    def _late_count(self, window: Window, evidence: ExitEvidence) -> AppState | None:
        """Return the app's state once it has counted the last action; None if it never does."""
        known, end_s = self._state, time.monotonic() + _LATE_COUNT_S
        counted = replace(evidence, handled=True)
        # Wait only if a count would shift the blame from the agent to the world.
        if evidence.handled is not False or self._attribute(window, counted)[0] != "world":
            return None
        while known is not None:
            now = self._device.look(self.package).state
            if now is not None and now["touches"] > known["touches"]:
                return now
            if time.monotonic() >= end_s:
                break
            time.sleep(LOOK_AGAIN_S)
        return None

    def _attribute(self, window: Window, evidence: ExitEvidence) -> tuple[ExitCause, str]:
        return attribute_exit(window, evidence, soon_s=self._soon_s)

    def _exit_event(self, window: Window, evidence: ExitEvidence) -> AppExit:
        by, why = self._attribute(window, evidence)
        log.info(
            "%s: %s %s in front, attributed to the %s because %s",
            *(self._device.serial, window.kind, window.package, by, why),
        )
        name = window.package
        if name == self.package and window.activity:
            name = f"{name}/{window.activity}"
        return AppExit(kind=window.kind, package=name, by=by, evidence=why)

    def _dismiss(
        self,
        window: Window,
        event: AppExit,
        known: AppState | None,
        evidence: ExitEvidence | None = None,
    ) -> AppExit | None:
        """Dismiss a window with its key, and check that the app is unchanged.

        Returns:
            None, or the event of another window below it if the agent's own action led there.
        """
        if window.kind not in _DISMISS_KEYS:
            raise self._app_left(event, "and windows of this kind are never dismissed")
        # If the window is already gone, the key would go to the app.
        if self._foreign_window() is not None:
            if window.kind == "update" and known is None:
                raise self._app_left(event, "and the app publishes no state, so it is not resumed")
            self._device.perform(Key(_DISMISS_KEYS[window.kind]))
            if window.kind == "update":  # the update window ignores BACK
                self._device.shell("monkey", "-p", self.package, "-c", _LAUNCHABLE, "1")
            self._wait_until(lambda: is_allowed(self._device.focus(), self._allowed))
        below = self._foreign_window()
        if below is not None and evidence is not None:
            left_by_agent = self._exit_event(below, evidence)
            if left_by_agent.by == "agent":
                return left_by_agent
        if below is not None:
            front = below.package or "nothing"
            raise self._app_left(event, f"and {front} is in front after it was dismissed")
        # A game that ran on, or received the key, is no longer in the state that the agent saw.
        now = self._device.look(self.package).state
        if known is not None and (now is None or _without_touches(now) != _without_touches(known)):
            raise self._app_left(event, f"and the state of {self.package} changed")
        return None

    def _foreign_window(self) -> Window | None:
        return foreign_window(self._device, self._allowed)

    def _foreign_window_after(self, silence: DeviceTimeout) -> Window | None:
        """Return the window in front of an app that did not answer; on a dead phone, raise."""
        try:
            return self._foreign_window()
        # What failed first is the action, so every message begins with it.
        except DeviceTimeout:
            raise silence from silence.__cause__
        except AppLeft as left:
            raise AppLeft(left.kind, f"{silence}. {left.message}") from silence
        except (DeviceOffline, LeaseLost) as lost:
            raise type(lost)(f"{silence}. {lost}") from silence
        except DeviceError as failed:
            raise DeviceError(f"{silence}. {failed}") from silence

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for a condition, up to the `settle_s` deadline."""
        end_s = time.monotonic() + self._device.deadlines.settle_s
        while not is_so() and time.monotonic() < end_s:
            time.sleep(LOOK_AGAIN_S)

    def _app_left(self, event: AppExit, why: str) -> AppLeft:
        dark = why_dark(self._device) if event.kind == "system_window" else None
        why = f"{why}; {dark}" if dark else why
        dialog = {"anr": "the not-responding dialog of ", "crash": "the crash dialog of "}
        return AppLeft(
            event.kind,
            f"{self._device.serial}: {dialog.get(event.kind, '')}{event.package} "
            f"covered {self.package}, {why}; attributed to the {event.by} because {event.evidence}",
        )


def _time_to_front_s(settled: Settled, until_s: float, allowed: Collection[str]) -> float:
    """Return seconds from the action to the first sign of the window in front, else `until_s`."""
    if is_allowed(settled.front, allowed):
        return until_s
    if settled.handled is None and settled.effect_s is not None:
        return settled.effect_s  # the foreground was read late, once the screen had settled
    return settled.front_s


def _without_touches(state: AppState) -> dict[str, Any]:
    """Drop the touch count, which a key that dismisses another window may change."""
    return {name: value for name, value in state.items() if name != "touches"}
