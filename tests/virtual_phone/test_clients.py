"""All common clients with all available adb programs on virtual phones."""

import base64
import http.server
import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import adbutils
import cv2
import numpy as np
import pytest
from ppadb.client import Client

from tests.virtual_phone.adb_station import (
    PACKAGE,
    PATIENCE_S,
    PROBE,
    STATE,
    Station,
    programs,
    stations,
)
from tests.virtual_phone.apks import apk, binary_manifest
from virtual_phone import VirtualPhones, spawn

pytestmark = [
    pytest.mark.adb,
    # adbutils and pure-python-adb leave sockets open.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
APP = "com.example.app"


@pytest.fixture(scope="module")
def phones() -> Iterator[VirtualPhones]:
    with spawn(2, [PROBE], tempo="quick") as running:
        yield running


@pytest.fixture(scope="module", params=programs(), ids=lambda program: Path(program).parent.name)
def station(request: pytest.FixtureRequest, phones: VirtualPhones) -> Iterator[Station]:
    with stations(request.param, phones) as (first, _):
        yield first


@pytest.fixture
def device(station: Station) -> adbutils.AdbDevice:
    return station.adbutils()


@pytest.fixture
def pure(station: Station) -> object:
    client = Client(host=station.server.host, port=station.server.port)
    return client.device(station.serial)


@pytest.fixture(autouse=True)
def probe(station: Station) -> None:
    station.adb("shell", f"am start -S -n {PACKAGE}/.Main")


@pytest.fixture
def page() -> Iterator[int]:
    """Serve a page on a port of this machine."""

    class TextPage(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"<html><title>Page {self.path}</title></html>".encode() + bytes(200_000)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), TextPage)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


def test_adb_devices_lists_the_properties_of_the_phone(station: Station) -> None:
    listed = station.adb("devices", "-l")
    assert re.search(rf"{station.serial}\s+device .*model:Virtual_Phone device:virtual", listed)
    assert station.adb("get-state") == "device\n"
    assert "shell_v2" in station.adb("features")


def test_a_reversed_port_leads_to_the_computer(station: Station, page: int) -> None:
    station.adb("reverse", "tcp:8080", f"tcp:{page}")
    assert station.adb("reverse", "--list").split() == ["host-0", "tcp:8080", f"tcp:{page}"]
    got = station.run("shell", "curl -s http://127.0.0.1:8080/there").stdout
    assert got.startswith(b"<html><title>Page /there</title>")
    assert len(got) > 200_000
    # Two nested tunnels: from the computer to the phone and back again.
    local = station.adb("forward", "tcp:0", "tcp:8080").strip()
    with socket.create_connection(("127.0.0.1", int(local)), PATIENCE_S) as tunnel:
        tunnel.sendall(b"GET /two HTTP/1.0\r\n\r\n")
        received = b""
        while chunk := tunnel.recv(1 << 16):
            received += chunk
    assert b"<title>Page /two</title>" in received
    assert received.endswith(bytes(200_000))
    station.adb("forward", "--remove", f"tcp:{local}")
    station.adb("reverse", "--remove", "tcp:8080")
    assert "Connection refused" in station.shell("curl http://127.0.0.1:8080/")
    assert station.run("reverse", "--remove", "tcp:8080").returncode != 0


def test_reversing_port_0_picks_a_free_port_and_norebind_is_respected(station: Station) -> None:
    port = station.adb("reverse", "tcp:0", "tcp:9").strip()
    assert port.isdecimal()
    refused = station.run("reverse", "--no-rebind", f"tcp:{port}", "tcp:10")
    assert b"cannot rebind existing socket" in refused.stderr
    station.adb("reverse", f"tcp:{port}", "tcp:10")
    assert f"tcp:{port} tcp:10" in station.adb("reverse", "--list")
    station.adb("reverse", "localabstract:there", "tcp:10")
    station.adb("reverse", "--remove-all")
    assert station.adb("reverse", "--list").strip() == ""


def test_the_browser_opens_a_page_through_a_reversed_port(station: Station, page: int) -> None:
    station.adb("reverse", "tcp:8080", f"tcp:{page}")
    intent = "am start -a android.intent.action.VIEW -d http://127.0.0.1:8080/game"
    station.adb("shell", intent)
    assert "u0 com.android.chrome/" in station.shell("dumpsys window windows")
    station.wait_for("uiautomator dump /dev/tty", "200 Page /game")
    station.adb("reverse", "--remove-all")


def test_connections_to_closed_ports_are_refused_in_both_directions(station: Station) -> None:
    station.adb("reverse", "tcp:8081", "tcp:1")
    assert "Empty reply" in station.shell("curl http://127.0.0.1:8081/")
    station.adb("reverse", "--remove-all")
    local = int(station.adb("forward", "tcp:0", "tcp:4321"))
    with socket.create_connection(("127.0.0.1", local), PATIENCE_S) as tunnel:
        assert tunnel.recv(10) == b""
    station.adb("forward", "--remove-all")


def test_an_apk_can_be_installed_and_uninstalled(
    station: Station, device: adbutils.AdbDevice, pure: Client, tmp_path: Path
) -> None:
    file = tmp_path / "x.apk"
    file.write_bytes(apk(binary_manifest(APP), extra=3_000_000))
    assert "Success" in station.adb("install", "-r", str(file))
    assert f"package:{APP}\n" in station.adb("shell", "pm list packages")
    assert "Success" in station.adb("uninstall", APP)
    device.install(str(file), silent=True, nolaunch=True)
    assert APP in device.list_packages()
    info = device.app_info(APP)
    assert (info.version_name, info.version_code) == ("2.5", 7)
    assert device.uninstall(APP) == "Success"
    assert pure.install(str(file))
    assert pure.is_installed(APP)
    assert pure.get_package_version_name(APP) == "2.5"
    assert pure.uninstall(APP)
    assert not pure.is_installed(APP)
    (tmp_path / "bad.apk").write_bytes(b"no apk")
    (tmp_path / "split_a.apk").write_bytes(apk(b"", extra=10))
    parts = (str(tmp_path / "split_a.apk"), str(file))
    assert "Success" in station.adb("install-multiple", "-r", *parts)
    path = station.adb("shell", f"pm path {APP}").strip().removeprefix("package:")
    station.adb("pull", path, str(tmp_path / "pulled.apk"))
    assert (tmp_path / "pulled.apk").read_bytes() == file.read_bytes()
    station.adb("uninstall", APP)
    refused = station.run("install", str(tmp_path / "bad.apk"))
    assert refused.returncode != 0
    assert b"INSTALL_PARSE_FAILED_NOT_APK" in refused.stdout + refused.stderr


def test_folders_are_pushed_and_pulled(station: Station, tmp_path: Path) -> None:
    for name in ("a.bin", "deep/b.bin"):
        (tmp_path / "there" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "there" / name).write_bytes(os.urandom(200_000))
    station.adb("push", str(tmp_path / "there"), "/sdcard/")
    station.adb("pull", "/sdcard/there", str(tmp_path / "back"))
    for name in ("a.bin", "deep/b.bin"):
        sent = (tmp_path / "there" / name).read_bytes()
        assert (tmp_path / "back" / name).read_bytes() == sent
    refused = station.run("push", str(tmp_path / "there/a.bin"), "/sdcard/there/a.bin/x")
    assert refused.returncode != 0
    assert b"Not a directory" in refused.stdout + refused.stderr
    station.adb("shell", "rm -r /sdcard/there")


def test_logcat_follows_the_log(station: Station) -> None:
    command = [station.program, "-P", str(station.server.port), "-s", station.serial]
    reading = subprocess.Popen(
        [*command, "logcat", "-v", "time", "loud:I", "*:S"],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert reading.stdout is not None
    for number in range(3):
        station.adb("shell", f"log -t loud line {number}; log -t other no")
        if not number:
            assert reading.stdout.readline() == "--------- beginning of main\n"
        assert re.fullmatch(
            rf"11-\d\d \d\d:\d\d:\d\d\.\d\d\d I/loud    \( 1000\): line {number}\n",
            reading.stdout.readline(),
        )
    reading.terminate()
    reading.wait(PATIENCE_S)
    reading.stdout.close()
    station.adb("logcat", "-c")
    assert station.adb("logcat", "-d", "-s", "loud") == ""


def test_the_phone_comes_back_after_a_reboot(station: Station) -> None:
    station.adb("reboot")
    end = time.monotonic() + PATIENCE_S
    while "Virtual" not in station.run("shell", "getprop ro.product.model").stdout.decode():
        assert time.monotonic() < end
        station.run("disconnect", station.serial)
        station.run("connect", station.serial)
    assert station.shell(f"pidof {PACKAGE}") == ""


def test_root_fails_as_on_a_user_build(station: Station) -> None:
    assert "cannot run as root in production builds" in station.adb("root")
    assert "restarting in TCP mode port: 5555" in station.adb("tcpip", "5555")
    assert station.shell("getprop service.adb.tcp.port") == "5555\n"


def test_every_feature_of_adbutils_works(device: adbutils.AdbDevice, tmp_path: Path) -> None:
    assert device.getprop("ro.product.model") == device.prop.model == "Virtual Phone"
    assert device.get_state() == "device"
    assert device.window_size() == (720, 1280)
    assert device.rotation() == 0
    assert device.is_screen_on()
    current = device.app_current()
    assert (current.package, current.activity) == (PACKAGE, f"{PACKAGE}.Main")
    touches = json.loads(device.shell(["cat", STATE]))["touches"]
    device.click(0.5, 0.2)
    device.swipe(0.5, 0.8, 0.5, 0.2, 0.01)
    device.drag(10, 200, 20, 900, 0.01)
    device.keyevent("ENTER")
    device.send_keys("hello world")
    state = json.loads(device.shell(["cat", STATE]))
    assert state["touches"] == touches + 5
    assert state["text"] == "hello world"
    assert device.dump_hierarchy().startswith("<?xml")
    assert PACKAGE in device.dump_hierarchy()
    assert device.battery().level == 100
    assert device.battery().temperature == 25.0
    device.brightness_value = 77
    assert device.brightness_value == 77
    assert device.wlan_ip() == "127.0.0.1"
    device.switch_wifi(False)
    assert device.shell("settings get global wifi_on") == "0"
    device.switch_airplane(True)
    assert device.shell("settings get global airplane_mode_on") == "1"
    device.open_browser("127.0.0.1:1/x")
    assert device.app_current().package == "com.android.chrome"
    device.app_start(PACKAGE)
    assert device.app_current().package == PACKAGE
    device.app_stop(PACKAGE)
    device.app_clear(PACKAGE)
    assert device.app_current().package == "com.android.chrome", "what was below"
    device.keyevent("HOME")
    assert device.app_current().package == "org.agentrl.launcher"
    assert device.shell2("false").returncode == 1
    assert device.shell2("echo out; echo err >&2; exit 3", v2=True).stderr == "err\n"
    device.switch_screen(False)
    assert not device.is_screen_on()
    device.switch_screen(True)
    device.keyevent(82)
    assert "cannot run as root" in device.root()
    reading = device.logcat(tmp_path / "log.txt")
    device.shell("log -t mine said")
    reading.stop_nowait()
    device.shell("log -t mine more")


def test_adbutils_moves_files(device: adbutils.AdbDevice, tmp_path: Path) -> None:
    content = os.urandom(100_000)
    assert device.sync.push(content, "/sdcard/f/x.bin", check=True) == len(content)
    assert device.sync.read_bytes("/sdcard/f/x.bin") == content
    assert device.sync.stat("/sdcard/f/x.bin").size == len(content)
    assert device.sync.exists("/sdcard/f/x.bin")
    assert not device.sync.exists("/sdcard/f/y.bin")
    device.sync.push(b"1", "/sdcard/f/deep/y.txt")
    assert {entry.path for entry in device.sync.list("/sdcard/f")} >= {"x.bin", "deep"}
    device.sync.pull("/sdcard/f", tmp_path / "f")
    assert (tmp_path / "f/x.bin").read_bytes() == content
    assert (tmp_path / "f/deep/y.txt").read_text() == "1"
    device.rmtree("/sdcard/f")
    assert not device.sync.exists("/sdcard/f/x.bin")


def test_the_framebuffer_and_a_capture_are_the_same_picture(
    device: adbutils.AdbDevice, station: Station
) -> None:
    raw = station.run("exec-out", "screencap").stdout
    pixels = np.frombuffer(raw, np.uint8, offset=16).reshape(1280, 720, 4)
    assert np.array_equal(np.asarray(device.framebuffer()), pixels)
    assert np.array_equal(np.asarray(device.screenshot(error_ok=False)), pixels[..., :3])
    assert np.array_equal(np.asarray(device.screenshot(0, error_ok=False)), pixels[..., :3])


def test_adbutils_opens_ports(device: adbutils.AdbDevice, page: int) -> None:
    device.reverse("tcp:8088", f"tcp:{page}")
    assert [(one.remote, one.local) for one in device.reverse_list()] == [
        ("tcp:8088", f"tcp:{page}")
    ]
    with device.create_connection(adbutils.Network.TCP, 8088) as tunnel:
        tunnel.sendall(b"GET /x HTTP/1.0\r\n\r\n")
        assert tunnel.recv(12) == b"HTTP/1.0 200"
    local = device.forward_port(8088)
    assert any(one.local == f"tcp:{local}" for one in device.forward_list())
    device.forward_remove_all()
    device.reverse_remove("tcp:8088")
    assert device.reverse_list() == []
    with pytest.raises(adbutils.AdbError):
        device.create_connection(adbutils.Network.LOCAL_ABSTRACT, "no-listener")


def test_every_feature_of_pure_python_adb_works(
    pure: Client, station: Station, tmp_path: Path
) -> None:
    assert pure.shell("echo hi") == "hi\n"
    assert (pure.wm_size().width, pure.wm_size().height) == (720, 1280)
    assert pure.wm_density() == 2
    assert pure.get_battery_level() == 100
    assert PACKAGE in pure.list_packages()
    assert "android.hardware.touchscreen" in pure.list_features()
    assert pure.get_properties()["ro.product.model"] == "Virtual Phone"
    touches = json.loads(pure.shell(f"cat {STATE}"))["touches"]
    pure.input_tap(100, 200)
    pure.input_swipe(1, 300, 300, 900, 10)
    pure.input_keyevent(66, longpress=True)
    pure.input_text("word")
    state = json.loads(pure.shell(f"cat {STATE}"))
    assert state["touches"] == touches + 4
    assert state["text"] == "word"
    image = cv2.imdecode(np.frombuffer(pure.screencap(), np.uint8), cv2.IMREAD_COLOR)
    assert image.shape == (1280, 720, 3)
    top = pure.get_top_activity()
    assert (top.package, top.activity) == (PACKAGE, f"{PACKAGE}.Main")
    assert pure.get_pid(PACKAGE) == str(top.pid)
    assert pure.get_uid(PACKAGE).isdecimal()
    assert int(pure.get_meminfo(PACKAGE).pss) > 0
    assert pure.cpu_count() == 2
    assert pure.cpu_times().user > 0
    assert pure.wait_boot_complete(timeout=1)
    (tmp_path / "x").write_bytes(b"123" * 50_000)
    pure.push(str(tmp_path / "x"), "/sdcard/x")
    pure.pull("/sdcard/x", str(tmp_path / "y"))
    assert (tmp_path / "y").read_bytes() == b"123" * 50_000
    assert "No such file" in pure.pull("/sdcard/none", str(tmp_path / "z"))
    assert pure.clear(PACKAGE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        local = f"tcp:{free.getsockname()[1]}"
    pure.forward(local, "tcp:8080")
    assert pure.list_forward() == {local: "tcp:8080"}
    pure.killforward_all()
    station.adb("reverse", "tcp:5", "tcp:6")
    assert pure.list_reverses() == [{"remote": "tcp:5", "local": "tcp:6"}]
    station.adb("reverse", "--remove-all")
    with pytest.raises(RuntimeError, match="cannot run as root"):
        pure.root()


def test_unicode_text_arrives_byte_for_byte(station: Station) -> None:
    words = "héllo 你好 👋 '; reboot; $(reboot) \"`\n"
    station.adb("shell", "ime enable com.android.adbkeyboard/.AdbIME")
    station.adb("shell", "ime set com.android.adbkeyboard/.AdbIME")
    encoded = base64.b64encode(words.encode()).decode()
    answer = station.adb("shell", f"am broadcast -a ADB_INPUT_B64 --es msg {encoded}")
    assert "Broadcast completed: result=0" in answer
    assert json.loads(station.adb("shell", f"cat {STATE}"))["text"] == words
    station.adb("shell", "ime reset")
