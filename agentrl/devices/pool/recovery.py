"""Recovers failed phones in escalating steps; never runs `adb kill-server`."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from agentrl.devices import readiness
from agentrl.devices.device import Device
from agentrl.errors import ConfigError, DeviceError

log = logging.getLogger(__name__)

_PAUSE_S = 0.25
_REBOOT_S = 180.0
"""Seconds that a phone may take to reboot."""
_DOWN_S = 15.0
"""Seconds that a phone may take to go down for a reboot."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Recovery:
    """Result of a recovery."""

    route: int | None
    """Index of the route that answers; None if no route does."""
    steps: Sequence[str]


@dataclass(slots=True, kw_only=True)
class RecoveryLadder:
    """Recovers phones; calls block, but no longer than the deadlines of their steps."""

    reboot: bool = False
    """Whether a phone may be rebooted."""
    closing: threading.Event = field(default_factory=threading.Event)
    """Ends all waiting when set."""

    def recover(
        self,
        routes: Sequence[Device],
        failures: int,
        packages: Iterable[str] = (),
        taken: bool = False,
    ) -> Recovery:
        """Recover a phone, starting with the step that fits its failures, until it answers.

        Args:
            routes: routes to the phone, in order of preference.
            failures: number of failures in a row; after a second one, an answer is not enough.
            packages: apps that were started on the phone.
            taken: whether another job uses the phone; if so, do not stop apps or reboot.
        """
        start, steps = time.monotonic(), ["retry"]
        route = 0 if _answers(routes[0]) else None
        # After a second failure in a row, an answer alone proves nothing.
        if route is None or failures > 1:
            steps.append("reconnect")
            route = self._until(routes, routes[0].deadlines.connect_s, _connects)
        if route is not None and failures > 1 and not taken:
            steps.append("stop")
            stopped = all(_works(partial(routes[route].stop, name)) for name in packages)
            route = route if stopped and _answers(routes[route]) else None
        if self.reboot and not taken and (route is None or failures > 2):
            steps.append("reboot")
            route = None
            if any(_works(one.reboot) for one in routes):
                # The phone still answers for a moment; don't mistake that for a finished reboot.
                self._until(routes, _DOWN_S, lambda one: not _answers(one))
                route = self._until(routes, _REBOOT_S, _connects)
        log.warning(
            "%s failed (%d in a row); it %s after %s (%.1f s)",
            routes[0].serial,
            failures,
            "does not answer" if route is None else f"answers as {routes[route].serial}",
            ", ".join(steps),
            time.monotonic() - start,
        )
        return Recovery(route=route, steps=tuple(steps))

    def probe(self, routes: Sequence[Device]) -> int | None:
        """Check once if a quarantined phone works; return the working route's index, or None."""
        for number, route in enumerate(routes):
            # A hung phone may still run commands, so only a capture shows that it works.
            if _connects(route) and _works(route.screenshot):
                return number
        return None

    def _until(
        self, routes: Sequence[Device], deadline_s: float, holds: Callable[[Device], bool]
    ) -> int | None:
        """Return the index of the first route for which a condition holds within the deadline."""
        end = time.monotonic() + deadline_s
        while not self.closing.is_set():
            for number, route in enumerate(routes):
                if holds(route):
                    return number
            if time.monotonic() >= end:
                break
            self.closing.wait(_PAUSE_S)
        return None


def _works(call: Callable[[], object]) -> bool:
    try:
        call()
    except (DeviceError, ConfigError) as error:
        log.info("%s", error)
        return False
    return True


def _answers(device: Device) -> bool:
    """Return whether the device answers and has booted; adbd answers long before that."""
    try:
        return readiness.has_started(device)
    except DeviceError as error:
        log.info("%s", error)
        return False


def _connects(device: Device) -> bool:
    return _works(device.reconnect) and _answers(device)
