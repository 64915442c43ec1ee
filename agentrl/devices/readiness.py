"""Whether a phone can be used: Android has started, the screen is on, the battery lasts."""

import re
import time
from dataclasses import dataclass

from agentrl.devices.device import CommandResult, Device
from agentrl.errors import DeviceError, DeviceTimeout

POWER = ("dumpsys", "power")
POLICY = ("dumpsys", "window", "policy")
BATTERY = ("dumpsys", "battery")
_POLL_S = 0.25


def has_started(device: Device) -> bool:
    """Whether Android has booted; adbd answers long before apps can be started."""
    return device.shell("getprop", "sys.boot_completed").strip() == "1"


def wait_until_started(device: Device, deadline_s: float) -> None:
    """Wait until Android has booted."""
    end_s = time.monotonic() + deadline_s
    while not has_started(device):
        if time.monotonic() >= end_s:
            raise DeviceTimeout(
                f"{device.serial}: Android has not finished starting within {deadline_s:g} s "
                "(devices.deadlines.boot_s)"
            )
        time.sleep(_POLL_S)


def is_awake(power: CommandResult) -> bool:
    """Whether the screen is on, from the output of `POWER`."""
    values = dict(re.findall(r"(mWakefulness|mHoldingDisplaySuspendBlocker)=(\w+)", power.output))
    return values.get("mWakefulness", "Awake") == "Awake" and (
        values.get("mHoldingDisplaySuspendBlocker") != "false"
    )


def is_locked(policy: CommandResult) -> bool:
    """Whether the lock screen is shown, from the output of `POLICY`."""
    shown = re.search(r"(?:mShowingLockscreen|isStatusBarKeyguard|showing)=true", policy.output)
    return shown is not None


def why_dark(device: Device) -> str | None:
    """Why no app can be seen, and what to do; None if the screen is on and unlocked."""
    try:
        power, policy = device.batch(POWER, POLICY)
    except DeviceError:
        return None
    if is_awake(power) and not is_locked(policy):
        return None
    state = "locked" if is_awake(power) else "off"
    return (
        f"its screen is {state}: devices.wake=true wakes it, svc power stayon true keeps it awake "
        "while it charges, and the screen lock must be set to none"
    )


@dataclass(slots=True, kw_only=True, frozen=True)
class BatteryReading:
    """The state of a phone's battery."""

    level: float | None
    """Percent; None if it is not reported."""
    powered: bool
    degrees: float
    """Temperature in Celsius; 0 if it is not reported."""

    @staticmethod
    def parse(battery: CommandResult) -> "BatteryReading":
        """Parse the output of `BATTERY`."""
        values = dict(re.findall(r"^[ \t]*+([A-Za-z ]++): (\S+)", battery.output, re.MULTILINE))
        sources = ("AC", "USB", "Wireless")
        return BatteryReading(
            level=_number(values.get("level")),
            powered=any(values.get(f"{source} powered") == "true" for source in sources),
            degrees=(_number(values.get("temperature")) or 0) / 10,
        )

    def __str__(self) -> str:
        """Level, charger and temperature in words."""
        level = "?" if self.level is None else f"{self.level:.0f}"
        charging = "charging" if self.powered else "not charging"
        return f"{level}%, {charging}, {self.degrees:.0f} C"


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
