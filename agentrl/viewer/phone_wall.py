"""Show the phones of a running job, and tap free phones."""

import logging
import threading
import time
from typing import Any

from agentrl import devices
from agentrl.devices.phone_battery import BatteryReading
from agentrl.errors import ConfigError, DeviceError
from agentrl.replay.live_phone_states import read_live_phones
from agentrl.replay.run_reader import Run
from agentrl.text.phone_names import phone_name
from agentrl.types import Image

log = logging.getLogger(__name__)

FREE = "free"
_BATTERY_EVERY_S = 120.0


class PhoneWall:
    """The phones reported by a run's processes.

    Pages only get short names; serial numbers do not leave this process.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._opened: dict[str, devices.Device] = {}
        self._frames: dict[str, str] = {}
        self._batteries: dict[str, tuple[float, float | None]] = {}

    def phones(self) -> list[dict[str, Any]]:
        """Return the state of each phone, with its latest screen on disk."""
        shown = []
        for phone in read_live_phones(self._run.path):
            name, serial, frame = _name(phone), phone.pop("serial"), phone["frame"]
            # The latest frame may still be queued for the disk.
            if frame is not None and self._run.has_frame(frame):
                self._frames[name] = frame
            battery = self._batteries.get(serial, (0.0, None))[1]
            shown.append(
                {**phone, "name": name, "frame": self._frames.get(name), "battery": battery}
            )
        return shown

    def screen(self, name: str) -> Image:
        """Return the current screen of a free phone, uint8[H, W, 3].

        Raises:
            ConfigError: no process reports a phone with this name, or the phone is not free.
            DeviceError: the phone cannot be reached.
        """
        phone = self._free(name)
        self._look_at_battery(phone)
        return phone.screenshot()

    def tap(self, name: str, x: float, y: float) -> None:
        """Tap a free phone.

        Raises:
            ConfigError: no process reports a phone with this name, or the phone is not free.
            DeviceError: the phone cannot be reached.
        """
        if not (0 <= x <= 1 and 0 <= y <= 1):
            raise ConfigError(f"x={x}, y={y}: both must be in [0, 1]")
        self._free(name).perform(devices.Tap(x, y))

    def close(self) -> None:
        """Close the connections to all phones."""
        with self._lock:
            for phone in self._opened.values():
                phone.close()
            self._opened.clear()

    def _free(self, name: str) -> devices.Device:
        phone = next((p for p in read_live_phones(self._run.path) if _name(p) == name), None)
        if phone is None:
            raise ConfigError(f"no running job reports a phone {name!r}")
        if phone["state"] != FREE:
            raise ConfigError(f"{name} is not free, but {phone['state'] or 'in use'}")
        # adb on this machine may have a different phone with the same serial.
        if phone["host"] is not None:
            raise ConfigError(
                f"{name} belongs to {phone['host']} and cannot be reached from here; use agentrl "
                "devices on that host"
            )
        serial = phone["serial"]
        with self._lock:
            if serial not in self._opened:
                self._opened[serial] = devices.open_device(serial)
            return self._opened[serial]

    def _look_at_battery(self, phone: devices.Device) -> None:
        serial = phone.serial
        looked, level = self._batteries.get(serial, (0.0, None))
        if time.monotonic() - looked < _BATTERY_EVERY_S and looked:
            return
        try:
            (output,) = phone.batch(["dumpsys", "battery"])
            level = BatteryReading.parse(output).level
        except DeviceError as error:
            log.info("the battery of %s could not be read: %s", phone_name(serial), error)
        self._batteries[serial] = (time.monotonic(), level)


def _name(phone: dict[str, Any]) -> str:
    return phone_name(phone["serial"], phone["host"])
