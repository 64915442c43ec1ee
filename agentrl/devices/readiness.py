"""Checks that a phone can be used: Android has started, and the screen is on and unlocked."""

import re
import time

from agentrl.devices.device import CommandResult, Device
from agentrl.errors import DeviceError, DeviceTimeout

POWER = ("dumpsys", "power")
POLICY = ("dumpsys", "window", "policy")
_POLL_S = 0.25


def has_started(device: Device) -> bool:
    """Return whether Android has booted; adbd answers long before apps can be started."""
    return device.shell("getprop", "sys.boot_completed").strip() == "1"


def wait_until_started(device: Device, deadline_s: float) -> None:
    """Wait until Android has booted."""
    end_s = time.monotonic() + deadline_s
    while not has_started(device):
        if time.monotonic() >= end_s:
            raise DeviceTimeout(
                f"{device.serial}: Android did not finish booting within {deadline_s:g} s "
                "(devices.deadlines.boot_s)"
            )
        time.sleep(_POLL_S)


def is_awake(power: CommandResult) -> bool:
    """Return whether the screen is on, from the output of `POWER`."""
    values = dict(re.findall(r"(mWakefulness|mHoldingDisplaySuspendBlocker)=(\w+)", power.output))
    return values.get("mWakefulness", "Awake") == "Awake" and (
        values.get("mHoldingDisplaySuspendBlocker") != "false"
    )


def is_locked(policy: CommandResult) -> bool:
    """Return whether the lock screen is shown, from the output of `POLICY`."""
    shown = re.search(r"(?:mShowingLockscreen|isStatusBarKeyguard|showing)=true", policy.output)
    return shown is not None


def why_dark(device: Device) -> str | None:
    """Explain why no app is visible and what to do; None if the screen is on and unlocked."""
    try:
        power, policy = device.batch(POWER, POLICY)
    except DeviceError:  # this only adds to the message of an earlier failure
        return None
    if is_awake(power) and not is_locked(policy):
        return None
    state = "locked" if is_awake(power) else "off"
    return (
        f"its screen is {state}; set devices.wake=true to wake it, run 'svc power stayon true' to "
        "keep it awake while it charges, and set the screen lock to none"
    )
