"""What is done for a phone that failed, from the least to the most; never `adb kill-server`."""

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
"""For a phone to have started again."""
_DOWN_S = 15.0
"""For a phone to go down before that."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Climb:
    """What was done for a phone."""

    way: int | None
    """Which of the ways to it answers; None where none does."""
    rungs: Sequence[str]


@dataclass(slots=True, kw_only=True)
class Ladder:
    """Mends phones; its calls block, each no longer than the deadlines of its rungs."""

    reboot: bool = False
    """Whether a phone may be started again."""
    closing: threading.Event = field(default_factory=threading.Event)
    """Ends all waiting once it is set."""

    def climb(
        self,
        ways: Sequence[Device],
        failures: int,
        packages: Iterable[str] = (),
        taken: bool = False,
    ) -> Climb:
        """Do what the failures in a row call for, and more until the phone answers.

        Args:
            ways: to the same phone, the usual one first.
            failures: in a row: from the second on an answer alone does not suffice.
            packages: of the apps that were started on it.
            taken: somebody else plays on it: no app of theirs is stopped, and nothing rebooted.
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
        return Climb(way=way, rungs=tuple(rungs))

    def knock(self, ways: Sequence[Device]) -> int | None:
        """See once whether a phone in quarantine can be played on; the way by which it can."""
        return next((n for n, way in enumerate(ways) if _connects(way) and _shows(way)), None)

    def _rebooted(self, ways: Sequence[Device]) -> int | None:
        if not any(_works(way.reboot) for way in ways):
            return None
        # It answers for a moment longer, and would pass for one that has started again.
        self._until(ways, _DOWN_S, lambda way: not _answers(way))
        return self._until(ways, _REBOOT_S, _has_started)

    def _until(
        self, ways: Sequence[Device], deadline_s: float, holds: Callable[[Device], bool]
    ) -> int | None:
        """The first way of which something holds, within the deadline."""
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
    """Not before Android says so: adbd answers long before apps can be started."""
    if not _connects(device):
        return False
    try:
        return device.shell("getprop", "sys.boot_completed").strip() == "1"
    except DeviceError:
        return False
