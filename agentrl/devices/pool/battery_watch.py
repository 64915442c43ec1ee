"""Keeps phones with an empty or overheated battery from being leased."""

import logging
import time

from agentrl.devices.device import CommandResult, Device
from agentrl.devices.readiness import BATTERY, BatteryReading
from agentrl.errors import BatteryError

log = logging.getLogger(__name__)

_EVERY_S = 60.0
"""Seconds between readings of a phone whose battery was fine."""
_LOW, _EMPTY = 20, 10
"""Percent below which a phone that is not charging is reported, and not leased."""
_WARM_C, _HOT_C = 45, 50
"""Temperatures from which on a phone is reported, and not leased."""


class BatteryWatch:
    """Reads the batteries of phones, each at most once a minute."""

    def __init__(self) -> None:
        self._next_s: dict[str, float] = {}
        self._reported: set[str] = set()

    def check(self, device: Device) -> None:
        """Check the battery before a phone is leased."""
        now = time.monotonic()
        if now < self._next_s.get(device.serial, 0.0):
            return
        output = device.shell(*BATTERY)
        reading = BatteryReading.parse(CommandResult(output=output, code=0))
        level = 100.0 if reading.level is None or reading.powered else reading.level
        if level < _EMPTY or reading.degrees >= _HOT_C:
            what = "hot: let it cool down" if reading.degrees >= _HOT_C else "empty: charge it"
            raise BatteryError(f"{device.serial}: its battery is {what} ({reading})")
        self._next_s[device.serial] = now + _EVERY_S
        if level >= _LOW and reading.degrees < _WARM_C:
            self._reported.discard(device.serial)
        elif device.serial not in self._reported:
            self._reported.add(device.serial)
            log.warning(
                "%s: battery %s; it is set aside below %d%% without a charger, or from %d C on",
                device.serial,
                reading,
                _EMPTY,
                _HOT_C,
            )
