"""Recovers failed phones in escalating steps; never runs `adb kill-server`."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from agentrl.devices.device import Device
from agentrl.errors import ConfigError, DeviceError

log = logging.getLogger(__name__)

_PAUSE_S = 0.25
_REBOOT_S = 180.0
"""For a phone to finish rebooting."""
_DOWN_S = 15.0
"""For a phone to go down before that."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Recovery:
    """Result of a recovery."""

    way: int | None
    """Index of the route that answers; None if none does."""
    rungs: Sequence[str]


@dataclass(slots=True, kw_only=True)
class RecoveryLadder:
    """Recovers phones; its calls block, each no longer than the deadlines of its steps."""

    reboot: bool = False
    """Whether a phone may be rebooted."""
    closing: threading.Event = field(default_factory=threading.Event)
    """Ends all waiting once it is set."""

    def climb(
        self,
        ways: Sequence[Device],
        failures: int,
        packages: Iterable[str] = (),
        taken: bool = False,
    ) -> Recovery:
        """Recover a phone, starting with the step that fits its failures, until it answers.

        Args:
            ways: routes to the phone, the preferred one first.
            failures: in a row; from the second on, an answer alone is not enough.
            packages: apps that were started on it.
            taken: another job uses the phone: no app is stopped and nothing is rebooted.
        """
        start, rungs = time.monotonic(), ["retry"]
        way = 0 if _answers(ways[0]) else None
        if way is None or failures > 1:
            rungs.append("reconnect")
            way = self._until(ways, ways[0].deadlines.connect_s, _connects)
        if way is not None and failures > 1 and not taken:
            rungs.append("stop")
            way = _stopped(ways, way, packages)
        if self.reboot and not taken and (way is None or failures > 2):
            rungs.append("reboot")
            way = self._rebooted(ways)
        log.warning(
            "%s failed (%d in a row) and %s after %s, %.1f s",
            ways[0].serial,
            failures,
            "does not answer" if way is None else f"answers as {ways[way].serial}",
            ", ".join(rungs),
            time.monotonic() - start,
        )
        return Recovery(way=way, rungs=tuple(rungs))

    def knock(self, ways: Sequence[Device]) -> int | None:
        """Check once whether a quarantined phone works again; the index of the route, or None."""
        return next((n for n, way in enumerate(ways) if _connects(way) and _shows(way)), None)

    def _rebooted(self, ways: Sequence[Device]) -> int | None:
        if not any(_works(way.reboot) for way in ways):
            return None
        # It keeps answering for a moment, which must not be mistaken for a finished reboot.
        self._until(ways, _DOWN_S, lambda way: not _answers(way))
        return self._until(ways, _REBOOT_S, _has_started)

    def _until(
        self, ways: Sequence[Device], deadline_s: float, holds: Callable[[Device], bool]
    ) -> int | None:
        """The index of the first route for which a condition holds within the deadline."""
        end = time.monotonic() + deadline_s
        while not self.closing.is_set():
            for number, way in enumerate(ways):
                if holds(way):
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
    return _works(lambda: device.shell("true"))


def _connects(device: Device) -> bool:
    return _works(device.reconnect) and _answers(device)


def _shows(device: Device) -> bool:
    return _works(device.screenshot)


def _stopped(ways: Sequence[Device], way: int, packages: Iterable[str]) -> int | None:
    stopped = all(_works(partial(ways[way].stop, name)) for name in packages)
    return way if stopped and _answers(ways[way]) else None


def _has_started(device: Device) -> bool:
    """Whether Android has booted: adbd answers long before apps can be started."""
    if not _connects(device):
        return False
    try:
        return device.shell("getprop", "sys.boot_completed").strip() == "1"
    except DeviceError:
        return False
