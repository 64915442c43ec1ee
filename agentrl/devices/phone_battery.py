"""The battery of a phone, which must be charged and cool before the phone is leased."""

import logging
import re
import time
from dataclasses import dataclass

from agentrl.devices.device import CommandResult, Device
from agentrl.errors import BatteryError

log = logging.getLogger(__name__)

BATTERY = ("dumpsys", "battery")
_EVERY_S = 60.0
"""Seconds between battery readings of a phone whose battery was fine."""
_LOW, _EMPTY = 20, 10
"""Battery percentages below which a phone that is not charging is warned about, or not leased."""
_WARM_C, _HOT_C = 45, 50
"""Temperatures from which a phone is warned about, or not leased."""


@dataclass(slots=True, kw_only=True, frozen=True)
class BatteryReading:
    """The state of a phone's battery."""

    level: float | None
    """Charge in percent; None if not reported."""
    powered: bool
    degrees: float
    """Temperature in Celsius; 0 if not reported."""

    @staticmethod
    def parse(battery: CommandResult) -> "BatteryReading":
        """Parse the output of `BATTERY`."""
        # Possessive quantifiers keep long lines of other text from taking quadratic time.
        values = dict(re.findall(r"^[ \t]*+([A-Za-z ]++): (\S+)", battery.output, re.MULTILINE))
        sources = ("AC", "USB", "Wireless")
        return BatteryReading(
            level=_number(values.get("level")),
            powered=any(values.get(f"{source} powered") == "true" for source in sources),
            # Android reports tenths of a degree.
            degrees=(_number(values.get("temperature")) or 0) / 10,
        )

    def __str__(self) -> str:
        """Describe level, charging and temperature."""
        level = "?" if self.level is None else f"{self.level:.0f}"
        charging = "charging" if self.powered else "not charging"
        return f"{level}%, {charging}, {self.degrees:.0f} C"


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


class BatteryWatch:
    """Keeps phones with a nearly empty or hot battery from being leased.

    Each phone is checked once a minute.
    """

    def __init__(self) -> None:
        self._next_s: dict[str, float] = {}
        self._reported: set[str] = set()

    def check(self, device: Device) -> None:
        """Raise BatteryError if a phone must charge or cool down before it is leased."""
        now = time.monotonic()
        if now < self._next_s.get(device.serial, 0.0):
            return
        output = device.shell(*BATTERY)
        reading = BatteryReading.parse(CommandResult(output=output, code=0))
        # A phone that is charging or reports no level never counts as empty.
        level = 100.0 if reading.level is None or reading.powered else reading.level
        if level < _EMPTY or reading.degrees >= _HOT_C:
            what = "hot; let it cool down" if reading.degrees >= _HOT_C else "low; charge it"
            raise BatteryError(f"{device.serial}: its battery ({reading}) is too {what}")
        self._next_s[device.serial] = now + _EVERY_S
        # Warn only once until the phone has recovered.
        if level >= _LOW and reading.degrees < _WARM_C:
            self._reported.discard(device.serial)
        elif device.serial not in self._reported:
            self._reported.add(device.serial)
            log.warning(
                "%s: battery at %s; the phone is not leased below %d%% unless it is charging, "
                "or at %d C and above",
                device.serial,
                reading,
                _EMPTY,
                _HOT_C,
            )
