"""Diagnose a phone: report problems and how to fix them."""

from collections.abc import Callable, Iterator
from contextlib import closing

from agentrl.check.finding import Finding, note, ok, wrong
from agentrl.check.phones import phone_probes, phone_readings
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb.app_commands import has_package
from agentrl.devices.adb.network_address_check import is_mdns_name, is_network_serial
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.capture.phone_screen import read_display_id
from agentrl.devices.capture_and_input_timing import screen_toggler
from agentrl.devices.device import Deadlines, Device
from agentrl.errors import ConfigError, DeviceError, DeviceOffline

_FIXES = {
    "unauthorized": "unlock the phone and allow debugging on its screen, always from this computer "
    "(Android forgets computers after seven days without a connection, unless you run: adb shell "
    "settings put global adb_allowed_connection_time 0)",
    "offline": "unplug the phone and plug it in again, or run adb reconnect offline",
    "no permissions": "add the udev rules: developer.android.com/studio/run/device",
    "authorizing": "wait a moment, then run this again",
    "recovery": "to leave recovery mode, run adb reboot",
    "bootloader": "to leave the bootloader, run fastboot reboot",
    "sideload": "to leave sideload mode, run adb reboot",
}
_NOT_CONNECTED = "check the cable, and that USB debugging is on (developer options); adb devices"


def examine(
    server: AdbServer,
    serial: str,
    deadlines: Deadlines | None = None,
    *,
    paged: Callable[[AdbPhone], Device] | None = None,
    prove: phone_probes.Prove | None = None,
) -> Iterator[Finding]:
    """Examine a phone, prerequisites first; stop when nothing more can be tested.

    Starts the probe app, taps and types in it, and returns to the home screen at the end.

    Args:
        server: the adb server that the phone is connected to.
        serial: the phone's serial.
        deadlines: deadlines of every call; a phone that exceeds them is reported as slow.
        paged: gives a phone without the probe app a page that shows the probe
            (`agentrl.phone_page`); None skips the touch tests on such phones.
        prove: a further test with the probe app, if touches arrive.
    """
    reached = _reach(server, serial, deadlines or Deadlines())
    if isinstance(reached, Finding):
        yield reached
        return
    with closing(reached) as phone:
        yield ok("connected", "authorized and online")
        answered = phone_probes.check_commands(phone)
        yield answered
        try:
            # A foldable has several displays, so capture the one in use.
            phone.transport.display = read_display_id(phone)
            # Run all commands in one round trip, since each takes a tenth of a second over Wi-Fi.
            findings = list(phone_readings.parse_readings(phone.batch(*phone_readings.COMMANDS)))
            yield from findings
            yield from _duplicates(server, phone)
            if any(f.state == "wrong" and f.what in ("awake", "unlocked") for f in findings):
                fix = "wake and unlock the phone, then run this again"
                yield note("touches, captures", "not tested: the screen is off or locked", fix)
                return
            installed = has_package(phone, phone_probes.PROBE)
        except DeviceError as error:
            fix = _offline_fix(serial) if isinstance(error, DeviceOffline) else "adb reboot"
            yield wrong("phone", str(error), fix)
            return
        if installed:
            yield from phone_probes.PhoneProbe(phone, phone, prove).findings()
        elif paged is not None:
            yield from _on_page(phone, paged, prove)
        else:
            yield note("touches", "not tested: the probe app is not installed", "none needed")
            yield from phone_probes.check_captures(phone, screen_toggler(phone))


def _on_page(
    phone: AdbPhone, paged: Callable[[AdbPhone], Device], prove: phone_probes.Prove | None
) -> Iterator[Finding]:
    """Test a phone with the probe shown on a page."""
    try:
        device = paged(phone)
    except (ConfigError, DeviceError) as error:
        yield note("touches", f"not tested: {error}", "fix that and run this again")
        yield from phone_probes.check_captures(phone, screen_toggler(phone))
        return
    with closing(device):
        yield from phone_probes.PhoneProbe(phone, device, prove).findings()


def _reach(server: AdbServer, serial: str, deadlines: Deadlines) -> AdbPhone | Finding:
    """Connect to the phone; return it, or the finding that says why that failed."""
    try:
        server.ensure(deadlines.connect_s)
        return AdbPhone(server, serial, deadlines)
    except (DeviceError, ConfigError) as error:
        state = _state(server, serial)
        # Trust the error over the state, since the phone may have been authorized in between.
        if "authenticate" in str(error):
            return wrong("connected", str(error), _FIXES["unauthorized"])
        if state is None:
            is_wireless = is_network_serial(serial) or is_mdns_name(serial)
            fix = _offline_fix(serial) if is_wireless else _NOT_CONNECTED
            return wrong("connected", str(error), fix)
        if state == "offline":
            return wrong("connected", f"the phone is {state}: {error}", _offline_fix(serial))
        fix = next((fix for word, fix in _FIXES.items() if state.startswith(word)), "adb reboot")
        return wrong("connected", f"the phone is {state}: {error}", fix)


def _offline_fix(serial: str) -> str:
    if is_mdns_name(serial):
        return (
            "turn on wireless debugging (a restart may turn it off); adb mdns services lists phones"
        )
    if is_network_serial(serial):
        return "check that the phone is on, in this network, and that adb tcpip 5555 was run"
    return _FIXES["offline"]


def _state(server: AdbServer, serial: str) -> str | None:
    try:
        return server.devices().get(serial)
    except DeviceError:
        return None


def _duplicates(server: AdbServer, phone: AdbPhone) -> Iterator[Finding]:
    """Report other serials under which the same phone is connected."""
    serialno = phone.serialno()
    others = []
    for serial, state in server.devices().items():
        if serial != phone.serial and state == "device":
            try:
                with closing(AdbPhone(server, serial, phone.deadlines)) as other:
                    if other.serialno() == serialno:
                        others.append(serial)
            except (DeviceError, ConfigError):
                continue
    if others:
        yield note(
            "serials",
            f"the same phone is also connected as {', '.join(others)}",
            f"list only one of them in devices.source, or run adb disconnect {others[0]}",
        )
