"""Which serials lead to one phone: by cable and by Wi-Fi it has two, and can be lent but once."""

import logging
import secrets
from collections.abc import Iterable, Sequence
from typing import TypeVar

from agentrl.devices.protocol import Device
from agentrl.errors import DeviceError

log = logging.getLogger(__name__)

D = TypeVar("D", bound=Device)


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
