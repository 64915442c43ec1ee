"""Which serials lead to one phone: by cable and by Wi-Fi it has two, and can be lent but once."""

import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from agentrl.devices.device import Device
from agentrl.devices.pool.lease import Lendable
from agentrl.errors import DeviceError

log = logging.getLogger(__name__)

D = TypeVar("D", bound=Device)


class Ways:
    """The devices that lead to each phone of a pool, the usual one first.

    A phone keeps its name, which is the first serial that it had. One thread alone changes them.
    """

    def __init__(self, phones: Iterable[Sequence[Lendable]]) -> None:
        """Name the phones.

        Args:
            phones: for each the devices that lead to it, the usual one first.
        """
        self._to = {devices[0].serial: list(devices) for devices in phones}

    def __iter__(self) -> Iterator[str]:
        return iter(self._to)

    def to(self, phone: str) -> list[Lendable]:
        """The devices that lead to a phone, the usual one first."""
        return list(self._to[phone])

    def devices(self) -> list[Lendable]:
        """The devices of all phones."""
        return [device for ways in list(self._to.values()) for device in ways]

    def device(self, serial: str) -> Lendable:
        """The device of that serial, which is one of them."""
        return next(device for device in self.devices() if device.serial == serial)

    def phone_of(self, device: Lendable) -> str | None:
        """The phone that one more device leads to; None where it is no known one.

        Raises:
            DeviceError: the device failed.
        """
        known = list(self._to.items())
        return next((phone for phone, ways in known if is_same(ways, device)), None)

    def add(self, device: Lendable, *, phone: str | None = None) -> None:
        """One more device; a phone of its own, or one more way to another."""
        self._to.setdefault(device.serial if phone is None else phone, []).append(device)

    def prefer(self, phone: str, way: int | None) -> None:
        """Make one of the ways to a phone the usual one; None leaves it as it is."""
        if way:
            ways = self._to[phone]
            ways.insert(0, ways.pop(way))
            log.warning("%s is reached as %s from now on", phone, ways[0].serial)


def by_phone(devices: Iterable[D]) -> list[list[D]]:
    """The devices of each phone, in the order in which they are given.

    Raises:
        DeviceError: one of them failed.
    """
    phones: list[list[D]] = []
    for device in devices:
        for ways in phones:
            if is_same(ways, device):
                log.warning("%s is another way to %s", device.serial, ways[0].serial)
                ways.append(device)
                break
        else:
            phones.append([device])
    return phones


def is_same(ways: Sequence[Device], device: Device) -> bool:
    """Whether a device leads to the phone of others; one that is gone goes by its `ro.serialno`.

    Raises:
        DeviceError: the device failed.
    """
    if device.serialno() != ways[0].serialno():
        return False
    # Emulators of one image share that: a note that is left by one way is looked for by the other.
    note = f"/data/local/tmp/agentrl.{secrets.token_hex(8)}"
    device.shell("touch", note)
    try:
        return ways[0].batch(("ls", note))[0].code == 0
    except DeviceError:
        return True
    finally:
        device.shell("rm", "-f", note)
