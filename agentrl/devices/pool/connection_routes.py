"""The devices that reach each phone.

Over USB and Wi-Fi, a phone has two serials, but can be leased only once.
"""

import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from agentrl.devices.device import Device
from agentrl.devices.pool.lease import LeasableDevice
from agentrl.errors import DeviceError

log = logging.getLogger(__name__)

D = TypeVar("D", bound=Device)


class ConnectionRoutes:
    """The devices that reach each phone of a pool, in order of preference.

    A phone is identified by its first serial. Only one thread may modify this.
    """

    def __init__(self, phones: Iterable[Sequence[LeasableDevice]]) -> None:
        """Identify each phone by the serial of its first device."""
        self._to = {devices[0].serial: list(devices) for devices in phones}

    def __iter__(self) -> Iterator[str]:
        return iter(self._to)

    def to(self, phone: str) -> list[LeasableDevice]:
        """Return the devices that reach a phone, in order of preference."""
        return list(self._to[phone])

    def devices(self) -> list[LeasableDevice]:
        """Return the devices of all phones."""
        # Copy, because a newcomer may be added while another thread iterates.
        return [device for routes in list(self._to.values()) for device in routes]

    def device(self, serial: str) -> LeasableDevice:
        """Return the device with this serial, which must exist."""
        return next(device for device in self.devices() if device.serial == serial)

    def phone_of(self, device: LeasableDevice) -> str | None:
        """Return the known phone that another device reaches; None if it reaches a new phone."""
        known = list(self._to.items())
        return next((phone for phone, routes in known if is_same_phone(routes, device)), None)

    def add(self, device: LeasableDevice, *, phone: str | None = None) -> None:
        """Add a device as a new phone, or as another route to a known phone."""
        self._to.setdefault(device.serial if phone is None else phone, []).append(device)

    def prefer(self, phone: str, route: int | None) -> None:
        """Make the route with this index the preferred one; None changes nothing."""
        if route:
            routes = self._to[phone]
            routes.insert(0, routes.pop(route))
            log.warning("%s is now reached through %s", phone, routes[0].serial)


def group_by_phone(devices: Iterable[D]) -> list[list[D]]:
    """Group devices by the phone that they reach, in order of appearance."""
    phones: list[list[D]] = []
    for device in devices:
        for routes in phones:
            if is_same_phone(routes, device):
                log.warning("%s is another route to %s", device.serial, routes[0].serial)
                routes.append(device)
                break
        else:
            phones.append([device])
    return phones


def is_same_phone(routes: Sequence[Device], device: Device) -> bool:
    """Return whether a device reaches the same phone as `routes`.

    If the phone is offline, only `ro.serialno` is compared.
    """
    if device.serialno() != routes[0].serialno():
        return False
    # Emulators of one image share a serialno, so write a file over one route and look for it over
    # the other.
    note = f"/data/local/tmp/agentrl.{secrets.token_hex(8)}"
    device.shell("touch", note)
    try:
        return routes[0].batch(("ls", note))[0].code == 0
    except DeviceError:  # the phone is offline, so rely on the equal serial numbers
        return True
    finally:
        device.shell("rm", "-f", note)
