"""What is wrong with a phone, in plain words, and how to mend it."""

from collections.abc import Callable, Iterator
from contextlib import closing

from agentrl.devices.adb import AdbServer
from agentrl.devices.adb.app_launch import has_package
from agentrl.devices.adb.serial_addresses import is_network_serial
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.capture_benchmark import toggle
from agentrl.devices.device import Deadlines, Device
from agentrl.devices.doctor import phone_probes, phone_readings
from agentrl.devices.doctor.phone_readings import battery_level
from agentrl.errors import ConfigError, DeviceError, DeviceOffline
from agentrl.findings import Finding, note, ok, wrong

__all__ = ["Finding", "battery_level", "examine"]

_MENDS = {
    "unauthorized": "unlock it and allow debugging on its screen; tick: always from this computer",
    "offline": "unplug it and plug it in again, or adb reconnect offline",
    "no permissions": "udev rules are missing: developer.android.com/studio/run/device",
    "authorizing": "wait a moment, and look again",
    "recovery": "it is in recovery mode: adb reboot",
    "bootloader": "it is in its bootloader: fastboot reboot",
    "sideload": "it waits for an update: adb reboot",
}
_NOT_THERE = "see that its cable is in and debugging is on (developer options); adb devices"


def examine(
    server: AdbServer,
    serial: str,
    deadlines: Deadlines | None = None,
    *,
    paged: Callable[[AdbPhone], Device] | None = None,
) -> Iterator[Finding]:
    """Everything worth knowing about one phone, what has to be so for the rest first.

    It starts the probe app, taps on it and types into it, and goes to the home screen at the end.

    Args:
        server: that knows the phone.
        serial: of the phone.
        deadlines: of every call; a phone that answers later is told to be slow.
        paged: gives the phone a page (`agentrl.phone_page`) that can show the probe, for phones
            that the probe app is not installed on; None leaves touches untried there.
    """
    reached = _reach(server, serial, deadlines or Deadlines())
    if isinstance(reached, Finding):
        yield reached
        return
    with closing(reached) as phone:
        yield ok("connected", "authorised and online")
        answered = phone_probes.commands(phone)
        yield answered
        try:
            found = list(phone_readings.read(phone.batch(*phone_readings.COMMANDS)))
            yield from found
            yield from _twins(server, phone)
            if any(one.state == "wrong" and one.what in ("awake", "unlocked") for one in found):
                mend = "wake and unlock it, and look again"
                yield note("touches, captures", "not tried on a screen that is off or locked", mend)
                return
            installed = has_package(phone, phone_probes.PROBE)
        except DeviceError as error:
            mend = _offline(serial) if isinstance(error, DeviceOffline) else "adb reboot"
            yield wrong("phone", str(error), mend)
            return
        if installed:
            yield from phone_probes.Probe(phone, phone).findings()
        elif paged is not None:
            yield from _on_page(phone, paged)
        else:
            yield note("touches", "not tried: the probe app is not installed", "none needed")
            yield from phone_probes.captures(phone, toggle(phone))


def _on_page(phone: AdbPhone, paged: Callable[[AdbPhone], Device]) -> Iterator[Finding]:
    """What a phone does with the probe on a page."""
    try:
        device = paged(phone)
    except (ConfigError, DeviceError) as error:
        yield note("touches", f"not tried: {error}", "mend that, and look again")
        yield from phone_probes.captures(phone, toggle(phone))
        return
    with closing(device):
        yield from phone_probes.Probe(phone, device).findings()


def _reach(server: AdbServer, serial: str, deadlines: Deadlines) -> AdbPhone | Finding:
    """The phone, connected, or why it is not."""
    try:
        server.ensure(deadlines.connect_s)
        return AdbPhone(server, serial, deadlines)
    except (DeviceError, ConfigError) as error:
        state = _state(server, serial)
        if "authenticate" in str(error):  # it may have been allowed since
            return wrong("connected", str(error), _MENDS["unauthorized"])
        if state is None:
            mend = _offline(serial) if is_network_serial(serial) else _NOT_THERE
            return wrong("connected", str(error), mend)
        if state == "offline":
            return wrong("connected", f"it is {state}: {error}", _offline(serial))
        known = next(
            (mend for word, mend in _MENDS.items() if state.startswith(word)), "adb reboot"
        )
        return wrong("connected", f"it is {state}: {error}", known)


def _offline(serial: str) -> str:
    if is_network_serial(serial):
        return "see that it is on and in this network, and that adb tcpip 5555 was said"
    return _MENDS["offline"]


def _state(server: AdbServer, serial: str) -> str | None:
    try:
        return server.devices().get(serial)
    except DeviceError:
        return None


def _twins(server: AdbServer, phone: AdbPhone) -> Iterator[Finding]:
    """Other serials that the same phone answers under."""
    own = phone.serialno()
    others = []
    for serial, state in server.devices().items():
        if serial != phone.serial and state == "device":
            try:
                with closing(AdbPhone(server, serial, phone.deadlines)) as other:
                    if other.serialno() == own:
                        others.append(serial)
            except (DeviceError, ConfigError):
                continue
    if others:
        yield note(
            "serials",
            f"the same phone is connected as {', '.join(others)} too",
            f"name one of them in devices.source; adb disconnect {others[0]} drops the other",
        )
