"""A virtual phone whose app shows and reports every touch."""

from collections.abc import Iterator
from contextlib import contextmanager

from agentrl.devices import Deadlines, open_device
from agentrl.devices.adb_phone import AdbPhone
from virtual_phone.apps.probe_app import PROBE

PACKAGE = "org.agentrl.probe"


@contextmanager
def probe_phone(*, driver: str = "adbutils", capture: str = "raw") -> Iterator[AdbPhone]:
    """Start a virtual phone, connect it through the real adb server and open the app.

    Args:
        driver: see `devices.driver`.
        capture: see `devices.capture`.
    """
    phone = open_device(
        "virtual",
        apps=[PROBE],
        driver=driver,
        capture=capture,
        input="shell",
        deadlines=Deadlines(command_s=10, frame_s=10),
        tempo="quick",
    )
    assert isinstance(phone, AdbPhone)
    try:
        phone.launch(PACKAGE, ".Main", {})
        yield phone
    finally:
        phone.close()


def set_fault(phone: AdbPhone, name: str, value: str) -> None:
    """Set a fault of a virtual phone (`virtual_phone.faults`); an empty value clears it."""
    phone.shell("setprop", f"debug.agentrl.fault.{name}", value)
