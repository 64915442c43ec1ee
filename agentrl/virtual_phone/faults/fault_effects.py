"""Faults that change the phone at the moment they are set or cleared.

The other faults are read where they take effect: in services, captures and `input`.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentrl.virtual_phone.system.dialogs import KINDS

if TYPE_CHECKING:
    from agentrl.virtual_phone.phone import VirtualPhone

QUICK_REBOOT_S = 0.2


def strike(phone: "VirtualPhone", name: str, old: str, value: str) -> None:
    """Apply the immediate effect of a fault.

    Args:
        phone: phone that has the fault.
        name: name of the fault.
        old: its previous value; empty if it was not set.
        value: its new value; empty if it was cleared.
    """
    act = _STRIKES.get(name)
    if act is not None:
        act(phone, old, value)


def _front(phone: "VirtualPhone", old: str, value: str) -> None:
    package, _, activity = value.partition("/")
    if package:
        phone.tasks.bring(package, activity or None)
    elif old and phone.tasks.front == old.partition("/")[0]:
        phone.tasks.back()


def _dialog(phone: "VirtualPhone", old: str, value: str) -> None:
    for kind in KINDS:
        if kind == value:
            phone.show_dialog(kind)
    if not value and phone.dialog is not None:
        phone.end_dialog()


def _rotation(phone: "VirtualPhone", old: str, value: str) -> None:
    phone.geometry.sensor = int(value or "0")
    phone.display.at_once()


def _capture(phone: "VirtualPhone", old: str, value: str) -> None:
    phone.stale = phone.shown if value == "stale" else None


def _storage(phone: "VirtualPhone", old: str, value: str) -> None:
    left = phone.faults.number("storage_mb") * 1e6
    phone.files.leave_free(round(left) if value and left < math.inf else None)


def _offline(phone: "VirtualPhone", old: str, value: str) -> None:
    if value:
        seconds = phone.faults.number("offline_s")
        phone.faults.forget("offline_s")
        phone.on_power("offline", seconds)


def _reboot(phone: "VirtualPhone", old: str, value: str) -> None:
    if value:
        seconds = phone.faults.number("reboot")
        phone.faults.forget("reboot")
        phone.on_power("reboot", seconds)


_STRIKES: dict[str, Callable[["VirtualPhone", str, str], None]] = {
    "front": _front,
    "dialog": _dialog,
    "rotation": _rotation,
    "capture": _capture,
    "storage_mb": _storage,
    "offline_s": _offline,
    "reboot": _reboot,
}
