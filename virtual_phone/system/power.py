"""Screen state, lock screen and battery of a phone."""

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Power:
    """Screen state and lock screen."""

    awake: bool = True
    locked: bool = False
    has_lock: bool = True
    """Whether the phone locks when its screen turns off."""

    def sleep(self) -> None:
        """Turn the screen off."""
        self.awake = False
        self.locked = self.has_lock

    def wake(self) -> None:
        """Turn the screen on, keeping the lock screen."""
        self.awake = True

    def unlock(self) -> None:
        """Dismiss the lock screen if the phone is awake."""
        self.locked = self.locked and not self.awake


def _full_battery() -> dict[str, str]:
    return {
        "AC powered": "true",
        "USB powered": "false",
        "Wireless powered": "false",
        "Dock powered": "false",
        "Max charging current": "1500000",
        "Max charging voltage": "5000000",
        "Charge counter": "3000000",
        "status": "2",
        "health": "2",
        "present": "true",
        "level": "100",
        "scale": "100",
        "voltage": "4200",
        "temperature": "250",
        "technology": "Li-ion",
    }


_SHORT_NAMES = {"ac": "AC powered", "usb": "USB powered", "wireless": "Wireless powered"}
_TEMPERATURE = "temp"


@dataclass(slots=True, kw_only=True)
class Battery:
    """Values shown by `dumpsys battery`, which can be overridden as on a real phone."""

    values: dict[str, str] = field(default_factory=_full_battery)

    def set(self, name: str, value: str) -> None:
        """Override a value."""
        name = "temperature" if name == _TEMPERATURE else name
        if name in _SHORT_NAMES and value in ("0", "1"):
            self.values[_SHORT_NAMES[name]] = "true" if value == "1" else "false"
        elif name in self.values and value.lstrip("-").isdecimal() and len(value) < 10:
            self.values[name] = value
        else:
            raise ValueError(f"Unknown set option: {name}")

    def unplug(self) -> None:
        """Pretend that no charger is connected."""
        for name in _SHORT_NAMES.values():
            self.values[name] = "false"
        self.values["status"] = "3"

    def reset(self) -> None:
        """Remove all overrides."""
        self.values = _full_battery()
