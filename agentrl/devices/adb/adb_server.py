"""Starts the adb server if it is not running, and connects phones to it.

The server is shared by everything on the machine, so it is never killed, and repairing one phone
does not touch the others.
"""

import logging
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which

from agentrl.devices.adb.adb_socket import AdbRefused, AdbSocket, to_device_error
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.drivers import socket_class
from agentrl.devices.adb.network_address_check import check_address, is_mdns_name, is_network_serial
from agentrl.errors import ConfigError, DeviceError, DeviceOffline, DeviceTimeout

log = logging.getLogger(__name__)

_starting = threading.Lock()
_ASKS = "failed to authenticate"
_FORGETS = (
    "Android forgets a computer that has not connected for seven days; to prevent that, run on the "
    "phone: settings put global adb_allowed_connection_time 0"
)
_PAIR_S = 20.0
"""Time limit in seconds for pairing with a phone."""
_LAST_PORT = 65535
"""Largest port number; adb does not accept it either, only those below."""
_WIRELESS = 31
"""First platform-tools version that finds wireless-debugging phones by name."""


@dataclass(slots=True, kw_only=True, frozen=True)
class AdbServer:
    """An adb server, running or not; calls raise DeviceError, or DeviceTimeout if it hangs."""

    host: str = "127.0.0.1"
    port: int = 5037
    adb: str | None = None
    """Path of the adb program that starts the server; None searches for one."""
    driver: str = "adbutils"
    """Library used to talk to the server; see `devices.driver`."""
    public: tuple[str, ...] = ()
    """Serials (`host:port`) that may be connected even though their address is public."""

    @staticmethod
    def from_environment(
        driver: str = "adbutils", *, public: Iterable[str] = (), port: int | None = None
    ) -> "AdbServer":
        """Return the server that adb itself would use, given the ANDROID_ADB_SERVER_* variables."""
        # Check this first, because importing adbutils also parses the variable as a number.
        named = os.environ.get("ANDROID_ADB_SERVER_PORT", "5037")
        if not re.fullmatch("[0-9]{1,5}", named) or not 0 < int(named) < _LAST_PORT:
            raise ConfigError(
                f"ANDROID_ADB_SERVER_PORT is {named!r}; it must be a port number from 1 to "
                f"{_LAST_PORT - 1}, or unset"
            )
        socket_class(driver)
        host = os.environ.get("ANDROID_ADB_SERVER_ADDRESS", "127.0.0.1")
        return AdbServer(host=host, port=port or int(named), driver=driver, public=tuple(public))

    def ensure(self, deadline_s: float = 10.0) -> None:
        """Start the server if it is not running."""
        if not self.is_running(deadline_s):
            # Many phones may find the server missing at the same moment; only one starts it.
            with _starting:
                if not self.is_running(deadline_s):
                    self._start(deadline_s)

    def is_running(self, deadline_s: float = 5.0) -> bool:
        """Return whether a server answers."""
        try:
            self.query("host:version", Deadline(deadline_s))
        except DeviceError as error:
            if not isinstance(error.__cause__, ConnectionRefusedError):
                raise
            return False
        return True

    def devices(self, deadline_s: float = 5.0) -> dict[str, str]:
        """Map the serial of every phone known to the server to its state; `device` means ready."""
        lines = self.query("host:devices", Deadline(deadline_s)).splitlines()
        return dict(line.split("\t", 1) for line in lines if "\t" in line)

    def connect(self, serial: str, deadline_s: float = 10.0) -> None:
        """Make a phone ready: connect a `host:port`, or reconnect it if it is offline.

        Raises:
            ConfigError: the address is public or invalid.
            DeviceOffline: the phone cannot be reached.
            DeviceTimeout: the phone did not become ready in time.
        """
        deadline = Deadline(deadline_s)
        state = self.devices(deadline.seconds).get(serial)
        if state == "device":
            return
        if is_network_serial(serial) or is_mdns_name(serial):
            self._connect_over_network(serial, state, deadline)
            return
        if state is None:
            raise DeviceOffline(f"{serial} is not known to adb; check its cable and `adb devices`")
        if state == "unauthorized":
            raise DeviceOffline(
                f"{serial} is unauthorized; allow debugging on its screen. {_FORGETS}"
            )
        self._wait_until_ready(serial, deadline)

    def _connect_over_network(self, serial: str, state: str | None, deadline: Deadline) -> None:
        if is_network_serial(serial):
            check_address(serial, deadline, public=self.public)
        if state is not None:
            # For an offline phone, connect would say "already connected" and change nothing.
            self.disconnect(serial, deadline)
        try:
            answer = self.query(f"host:connect:{serial}", deadline).strip()
            # The server accepts the request even if connecting fails, so check the reply's text.
            if not answer.startswith(("connected to", "already connected to", _ASKS)):
                hint = self._wireless_hint(serial, deadline)
                raise DeviceOffline(f"{serial} cannot be connected: {answer}{hint}")
        except DeviceError:
            if state is None:
                self._forget_offline(serial)
            raise
        try:
            self._wait_until_ready(serial, deadline)
        except DeviceTimeout as error:
            if not answer.startswith(_ASKS):
                raise
            raise DeviceOffline(
                f"{serial} cannot be connected: {answer}; allow debugging on its screen. {_FORGETS}"
            ) from error

    def _wireless_hint(self, serial: str, deadline: Deadline) -> str:
        """Suggest a fix for a phone whose wireless debugging is off or on another port."""
        try:
            lines = self.query("host:mdns:services", deadline).splitlines()
        except DeviceError:
            if not is_mdns_name(serial):
                return ""
            return (
                "; the running adb server cannot find phones by name, which needs platform-tools "
                f"{_WIRELESS} or later"
            )
        rows = [line.split("\t") for line in lines]
        # Maps the name of each wireless-debugging phone to its address.
        found = {
            f"{row[0]}.{row[1].strip('.')}": row[2]
            for row in rows
            if len(row) == 3 and row[1].startswith("_adb-tls-connect.")
        }
        host = serial.rpartition(":")[0]
        for name, address in found.items():
            if is_network_serial(serial) and address.rpartition(":")[0] == host:
                return (
                    f"; its wireless debugging is now at {address}, which changes at each restart. "
                    f"Use its name instead, which does not change: {name}"
                )
        if not is_mdns_name(serial):
            return ""
        known = ", ".join(found) or "none"
        return f"; turn on wireless debugging (phones found by name: {known})"

    def pair(self, address: str, code: str) -> None:
        """Pair with a phone using the code on its screen, so that it trusts this machine.

        Args:
            address: pairing `HOST:PORT` shown with the code, which differs from the address to
                connect to.
            code: six digits.

        Raises:
            ConfigError: the code is malformed, the address is public or invalid, or the adb server
                is too old.
            DeviceOffline: the phone refused.
            DeviceTimeout: the phone did not answer.
        """
        deadline = Deadline(_PAIR_S)
        if not re.fullmatch("[0-9]{6}", code):
            raise ConfigError(f"the pairing code must have six digits, got {code[:20]!r}")
        if not is_network_serial(address):
            raise ConfigError(
                f"{address!r} must have the form HOST:PORT, such as 192.168.1.7:37123"
            )
        check_address(address, deadline, public=self.public)
        try:
            answer = self.query(f"host:pair:{code}:{address}", deadline).strip()
        except DeviceError as error:
            if "unknown host service" not in str(error):
                raise
            raise ConfigError(
                "the running adb server is too old to pair with phones; use the one from "
                "platform-tools 30 or later, or the one bundled with adbutils"
            ) from error
        if not answer.startswith("Successfully paired"):
            raise DeviceOffline(f"{address} was not paired: {answer}")

    def disconnect(self, serial: str, deadline: Deadline | None = None) -> None:
        """Disconnect a `host:port`; does nothing if the server does not know it."""
        deadline = deadline or Deadline(5.0)
        try:
            self.query(f"host:disconnect:{serial}", deadline)
        except DeviceError as error:
            if not isinstance(error.__cause__, AdbRefused):
                raise

    def forget(self, serials: Iterable[str]) -> None:
        """Disconnect phones that no longer exist; gives up if the server does not answer."""
        for serial in serials:
            try:
                self.disconnect(serial)
            except DeviceError as error:
                log.info("%s could not be disconnected and stays in adb's list: %s", serial, error)
                return

    def open_socket(self, deadline: Deadline) -> AdbSocket:
        """Open a connection to the server; raises OSError if it is not running."""
        return socket_class(self.driver)(self.host, self.port, deadline)

    def query(self, service: str, deadline: Deadline) -> str:
        """Send one request to the server itself and return its answer."""
        try:
            with self.open_socket(deadline) as link:
                link.request(service)
                return link.read_block()
        except (OSError, AdbRefused) as error:
            raise to_device_error(error, f"adb server, {service}", deadline.seconds) from error

    def _forget_offline(self, serial: str) -> None:
        """Remove an offline phone from the list; an unauthorized phone may stay."""
        try:
            if self.devices().get(serial) == "offline":
                self.disconnect(serial)
        except DeviceError as error:
            log.info("%s stays in adb's list: %s", serial, error)

    def _wait_until_ready(self, serial: str, deadline: Deadline) -> None:
        what = f"{serial} did not become ready"
        try:
            with self.open_socket(deadline) as link:
                link.request(f"host-serial:{serial}:wait-for-any-device")
                link.check_accepted()
        except (OSError, AdbRefused) as error:
            raise to_device_error(error, what, deadline.seconds) from error

    def _start(self, deadline_s: float) -> None:
        program = find_adb(self.adb)
        log.info("starting the adb server on port %d: %s", self.port, program)
        with tempfile.TemporaryFile() as output:  # the server would keep a pipe open
            try:
                code = subprocess.run(
                    [program, "-P", str(self.port), "start-server"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=deadline_s,
                    start_new_session=True,
                    check=False,
                ).returncode
            except (subprocess.TimeoutExpired, OSError) as error:
                raise DeviceError(f"{program} start-server failed: {error}") from error
            output.seek(0)
            text = output.read().decode(errors="replace").strip()
        if code:
            raise DeviceError(f"{program} start-server on port {self.port} failed: {text}")


def find_adb(configured: str | None = None) -> str:
    """Return the adb program: as configured, else from PATH, else bundled with adbutils.

    If adb in PATH is too old for wireless debugging, the bundled adb is preferred.
    """
    if configured is not None:
        if not os.access(configured, os.X_OK):
            raise ConfigError(f"adb: {configured} is not an executable program")
        return configured
    found = which("adb")
    if found and not (0 < _adb_version(found) < _WIRELESS):
        return found
    import adbutils.binaries

    bundled = str(Path(adbutils.binaries.__file__).parent / "adb")
    is_bundled = os.access(bundled, os.X_OK)  # adbutils bundles adb only for some platforms
    if found and not (is_bundled and _adb_version(bundled) >= _WIRELESS):
        return found
    if not is_bundled:
        raise ConfigError("adb was not found; install Android's platform-tools")
    return bundled


@cache
def _adb_version(program: str) -> int:
    """Return an adb program's platform-tools version, such as 36; 0 if unknown."""
    try:
        printed = subprocess.run([program, "version"], capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(rb"^Version (\d+)\.", printed.stdout, re.MULTILINE)
    return int(version[1]) if version else 0
