import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import adbutils.binaries
import pytest

from agentrl.check import installation
from agentrl.child_process import free_port
from agentrl.devices import check_source, open_device, open_source
from agentrl.devices.adb import AdbServer, find_adb
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.network_address_check import check_address
from agentrl.devices.adb_phone import AdbPhone
from agentrl.errors import ConfigError, DeviceError, DeviceOffline, DeviceTimeout
from agentrl.extension_points import DRIVER
from tests.devices.relay import relayed
from virtual_phone import spawn

pytestmark = pytest.mark.adb


def test_an_unreachable_serial_raises_one_clear_message(adb_server: AdbServer) -> None:
    with spawn(1) as phones, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError) as raised:
            open_source([phones.serials[0], gone])
        message = str(raised.value)
        assert f"{gone} cannot be connected" in message
        assert f"Ready phones in the list: {phones.serials[0]}." in message
        assert "agentrl devices connect" in message
        check_source([phones.serials[0]])
        adb_server.disconnect(phones.serials[0])


@pytest.mark.parametrize("source", ["virtual:0", "virtual:x", "virtual:-1", [], ["a", "a"], [5], 3])
def test_an_invalid_source_is_a_config_error(source: object) -> None:
    with pytest.raises(ConfigError, match=r"devices\.source"):
        check_source(source)


def test_an_unknown_cable_serial_is_named(adb_server: AdbServer) -> None:
    with pytest.raises(DeviceOffline, match="NOSUCHPHONE is not known to adb"):
        open_device("NOSUCHPHONE")


@pytest.mark.parametrize("serial", ["8.8.8.8:5555", "1.1.1.1:5555"])
def test_public_addresses_are_refused(serial: str) -> None:
    with pytest.raises(ConfigError, match="public address"):
        check_address(serial)


@pytest.mark.parametrize("serial", ["127.0.0.1:5600", "192.168.1.7:5555", "10.0.0.3:5555"])
def test_private_addresses_are_accepted(serial: str) -> None:
    check_address(serial)


@pytest.mark.parametrize("serial", ["no.such.host.invalid:5555", "\udcff:5555", "a" * 99 + ":5555"])
def test_an_unknown_host_is_a_config_error(serial: str) -> None:
    with pytest.raises(ConfigError, match="unknown host"):
        check_address(serial)


def test_an_unresponsive_name_server_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: asked.wait(30))
    start = time.monotonic()
    with pytest.raises(DeviceTimeout, match=r"DNS lookup of 'phone\.lan': no answer within 0\.1 s"):
        check_address("phone.lan:5555", Deadline(0.1))
    assert time.monotonic() - start < 5
    asked.set()


def test_closing_a_virtual_phone_ends_it_and_removes_it_from_the_server(
    adb_server: AdbServer,
) -> None:
    phone = open_device("virtual")
    assert adb_server.devices()[phone.serial] == "device"
    phone.close()
    assert phone.serial not in adb_server.devices()


@pytest.fixture(params=DRIVER.names())
def silent_server(request: pytest.FixtureRequest) -> Iterator[AdbServer]:
    """Something on the adb server's port that accepts and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield AdbServer(port=listener.getsockname()[1], driver=request.param)


def test_an_unresponsive_server_is_a_timeout(silent_server: AdbServer) -> None:
    with pytest.raises(DeviceTimeout, match=r"host:version: no answer within 0\.1 s"):
        silent_server.ensure(0.1)


@pytest.mark.parametrize("driver", DRIVER.names())
@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"FAIL0004what", "what"),
        (b"FAIL00", "adb server, host:version"),
        (b"OKAYxyz!", "expected the length of an answer, got b'xyz!'"),
        (b"OKAY", "expected the length of an answer, got b''"),
        (b"\xff\xfe\xfd\xfc", "adb server, host:version"),
        (b"", "adb server, host:version"),
    ],
)
def test_an_invalid_server_answer_is_an_error(driver: str, answer: bytes, complaint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reply() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(100)
                sock.sendall(answer)

        replying = threading.Thread(target=reply)
        replying.start()
        server = AdbServer(port=listener.getsockname()[1], driver=driver)
        with pytest.raises(DeviceError, match=complaint):
            server.query("host:version", Deadline(5))
        replying.join(5)


def programs() -> dict[str, str]:
    """Every adb program of this machine: the one in adbutils' wheel, and the system's."""
    found = {"wheel": str(Path(adbutils.binaries.__file__).parent / "adb")}
    for name in (which("adb"), "/usr/lib/android-sdk/platform-tools/adb"):
        if name is not None and os.access(name, os.X_OK):
            found.setdefault(os.path.realpath(name), name)
    return found


@contextlib.contextmanager
def server_that_is_not_running(**options: str) -> Iterator[AdbServer]:
    """A server on a free port, which is stopped at the end: it belongs to this test."""
    server = AdbServer(port=free_port(), **options)  # type: ignore[arg-type]
    try:
        yield server
    finally:
        with contextlib.suppress(DeviceError):
            server.query("host:kill", Deadline(5))


@pytest.mark.quick(1)
@pytest.mark.parametrize("driver", DRIVER.names())
@pytest.mark.parametrize("program", programs().values(), ids=programs())
def test_a_server_is_started_if_none_is_running(
    program: str, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADB_LOCAL_TRANSPORT_MAX_PORT", "5553")  # no emulators of this machine
    with (
        server_that_is_not_running(adb=program, driver=driver) as server,
        spawn(1, ["virtual_phone.apps.probe_app:ProbeApp"], tempo="quick") as phones,
    ):
        phone = AdbPhone(server, phones.serials[0])
        assert server.devices() == {phone.serial: "device"}
        phone.launch("org.agentrl.probe", ".Main", {"quote": "it's"})
        assert phone.app_state("org.agentrl.probe")["extras"] == {"quote": "it's"}
        assert phone.screenshot().shape == (1280, 720, 3)
        phone.close()


@contextlib.contextmanager
def emulator(phone_port: int) -> Iterator[int]:
    """A phone that also listens where emulators do, on the port that is given."""
    with contextlib.ExitStack() as stack:
        for port in range(5585, 5554, -2):
            try:
                stack.enter_context(relayed(phone_port, port=port))
            except OSError:
                continue  # another program listens there
            yield port
            return
    pytest.skip("programs listen on all ports of emulators")


@pytest.mark.parametrize("last_port", [None, "5553"])
def test_a_server_that_we_start_lists_running_emulators_unless_the_user_limits_the_ports(
    last_port: str | None, virtual_serial: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ADB_LOCAL_TRANSPORT_MAX_PORT", raising=False)
    if last_port is not None:
        monkeypatch.setenv("ADB_LOCAL_TRANSPORT_MAX_PORT", last_port)
    with (
        emulator(int(virtual_serial.rpartition(":")[2])) as port,
        server_that_is_not_running() as server,
    ):
        server.ensure()
        if last_port is not None:
            assert server.devices() == {}
            return
        serials = (f"emulator-{port - 1}", f"127.0.0.1:{port}")  # adb takes them for two phones
        with open_source(serials, adb_port=server.port) as pool:
            assert pool.serials == serials[:1], "it is leased once"


def test_the_bundled_adb_is_used_without_one_of_the_system_or_if_that_is_too_old(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_adb() == programs()["wheel"]
    for folder, printed, is_used in (
        ("new", "Version 35.0.2-12147458", True),
        ("old", "Version 29.0.6-debian", False),
        ("own", "", True),
    ):
        installed = tmp_path / folder / "adb"
        installed.parent.mkdir()
        installed.write_text(f"#!/bin/sh\necho '{printed}'\n")
        installed.chmod(0o755)
        monkeypatch.setenv("PATH", str(installed.parent))
        assert find_adb() == (str(installed) if is_used else programs()["wheel"])


@pytest.fixture
def wireless_server() -> Iterator[tuple[AdbServer, list[str]]]:
    """What a server with one phone in wireless debugging answers, and the requests it got."""
    requests: list[str] = []
    answers = {
        "host:devices": "",
        "host:mdns:services": f"{NAME}\t_adb-tls-connect._tcp\t192.168.1.7:41235\n"
        "adb-OTHER-1\t_adb-tls-pairing._tcp\t192.168.1.8:40000\n",
        f"host:connect:{NAME}._adb-tls-connect._tcp": "connected to it",
    }

    def reply() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with sock:
                    requests.append(sock.recv(200)[4:].decode())
                    text = answers.get(requests[-1], "failed to connect")
                    sock.sendall(f"OKAY{len(text):04x}{text}".encode())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        replying = threading.Thread(target=reply)
        replying.start()
        yield AdbServer(port=listener.getsockname()[1]), requests
        listener.shutdown(socket.SHUT_RDWR)
    replying.join(5)


NAME = "adb-28131FDH2-x7Qa1f"


def test_a_phone_with_wireless_debugging_is_connected_by_its_name(
    wireless_server: tuple[AdbServer, list[str]],
) -> None:
    server, requests = wireless_server
    with pytest.raises(DeviceError, match="did not become ready"):  # this server knows no more
        server.connect(f"{NAME}._adb-tls-connect._tcp", 2)
    assert f"host:connect:{NAME}._adb-tls-connect._tcp" in requests
    with pytest.raises(DeviceOffline, match=f"turn on wireless debugging.*found by name: {NAME}"):
        server.connect("adb-GONE-1._adb-tls-connect._tcp", 2)


def test_a_phone_whose_wireless_port_has_changed_is_named(
    wireless_server: tuple[AdbServer, list[str]],
) -> None:
    server, _ = wireless_server
    with pytest.raises(DeviceOffline, match=rf"192\.168\.1\.7:41235.*Use its name.*{NAME}\._adb"):
        server.connect("192.168.1.7:37123", 2)


@pytest.mark.parametrize("program", programs().values(), ids=programs())
def test_a_server_without_the_phone_or_too_old_says_what_to_do(program: str) -> None:
    with server_that_is_not_running(adb=program) as server:
        server.ensure()
        with pytest.raises(DeviceOffline, match=r"platform-tools 31|found by name: none"):
            server.connect("adb-GONE-1._adb-tls-connect._tcp", 5)


def test_a_configured_program_must_exist() -> None:
    with pytest.raises(ConfigError, match="/no/adb is not an executable program"):
        find_adb("/no/adb")


@pytest.mark.parametrize("port", ["", "0", "65535", "99999", "-1", "\u00b2", "x", "5 037"])
def test_an_invalid_port_is_reported(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", port)
    with pytest.raises(ConfigError, match="ANDROID_ADB_SERVER_PORT is"):
        AdbServer.from_environment()
    assert [found.state for found in installation._adb()][-1] == "missing"


@pytest.mark.parametrize("driver", DRIVER.names())
def test_an_invalid_host_name_is_an_error(driver: str) -> None:
    with pytest.raises(DeviceError, match="adb server, host:devices"):
        AdbServer(host="a..b", driver=driver).devices()


def test_connecting_waits_until_the_owner_allows_it(adb_server: AdbServer) -> None:
    with spawn(1, auth=True) as phones:
        adb_server.connect(phones.serials[0])
        assert adb_server.devices()[phones.serials[0]] == "device"
        adb_server.disconnect(phones.serials[0])


def test_a_phone_whose_owner_does_not_allow_it_is_offline(adb_server: AdbServer) -> None:
    with spawn(1, auth=True, keys=[]) as phones:
        with pytest.raises(DeviceOffline, match=r"authenticate.*allow debugging.*seven days"):
            adb_server.connect(phones.serials[0], 2.0)
        adb_server.disconnect(phones.serials[0])


def test_an_unreachable_address_does_not_stay_in_the_list(adb_server: AdbServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        serial = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(DeviceError):
            adb_server.connect(serial, 3)
        assert serial not in adb_server.devices()
