import contextlib
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from agentrl.devices import Deadlines, Device, Result, check_source, open_device, open_source
from agentrl.devices.adb import AdbServer, check_address, find_adb
from agentrl.devices.adbutils_driver import AdbutilsDevice, _packets, _results
from agentrl.devices.capture import FrameReader
from agentrl.devices.link import Deadline
from agentrl.errors import CaptureError, ConfigError, DeviceError, DeviceOffline, DeviceTimeout
from agentrl.phone import spawn

pytestmark = pytest.mark.adb
PROBE = "agentrl.phone.apps:ProbeApp"
PACKAGE = "org.agentrl.probe"

HOSTILE = [
    "'", '"', "''", "';reboot;'", "$(reboot)", "`reboot`", "; reboot", "&& reboot", "| reboot",
    "\nreboot\n", "a\\", "\\'", "$HOME", "${IFS}reboot", "#", "*", "~", "!", "> /sdcard/x",
    "%s", "%%s", "-n", "--help", "\u2019; reboot", "\u202ereboot", "e\u0301", "\U0001f600",
    "x" * 5000, "\x1b[2J", "\r\nreboot", "\x7f", " ", "",
]  # fmt: skip


@pytest.fixture(scope="module")
def shared_phone(adb_server: AdbServer) -> Iterator[Device]:
    device = open_device("virtual")
    yield device
    device.close()


def test_a_phone_is_driven_from_launch_to_stop(virtual_phone: Device) -> None:
    phone = virtual_phone
    assert phone.size() == (720, 1280)
    phone.launch(PACKAGE, ".Main", {"level": "2 hard", "quote": "it's"})
    assert phone.focus() == PACKAGE
    before = phone.screenshot()
    assert (before.shape, before.dtype) == ((1280, 720, 3), np.uint8)
    phone.tap(0.5, 0.25)
    phone.swipe(0.5, 0.9, 0.5, 0.2, duration_s=0.1)
    phone.key("ENTER")
    phone.text("50 %s it's")
    state = phone.app_state(PACKAGE)
    assert state["extras"] == {"level": "2 hard", "quote": "it's"}
    assert state["last"][-1] == 100
    assert state["keys"] == ["KEYCODE_ENTER"]
    assert state["text"] == "50 %s it's"
    assert state["launches"] == 2
    after = phone.screenshot()
    assert not np.array_equal(before, after)
    phone.stop(PACKAGE)
    assert phone.focus() != PACKAGE
    with pytest.raises(DeviceError, match="publishes no state"):
        phone.app_state(PACKAGE)


def test_a_screenshot_belongs_to_its_caller(virtual_phone: Device) -> None:
    first = virtual_phone.screenshot()
    copy = first.copy()
    virtual_phone.tap(0.5, 0.25)
    virtual_phone.screenshot()
    assert np.array_equal(first, copy)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_one_argument_and_never_a_command(shared_phone: Device, text: str) -> None:
    assert shared_phone.shell("echo", "x", text) == f"x {text}\n"
    results = shared_phone.batch(("echo", "x", text), ("false",), ("echo", "end"))
    assert [(r.output, r.code) for r in results] == [(f"x {text}\n", 0), ("", 1), ("end\n", 0)]


def test_a_nul_is_refused_before_it_is_sent(virtual_phone: Device) -> None:
    with pytest.raises(DeviceError, match="NUL"):
        virtual_phone.shell("echo", "a\0b")


def test_a_failing_command_names_itself_its_code_and_its_words(virtual_phone: Device) -> None:
    with pytest.raises(DeviceError, match=r"cat /nowhere failed with code 1: cat: /nowhere: No"):
        virtual_phone.shell("cat", "/nowhere")


def test_an_app_that_refuses_its_extras_says_so(virtual_phone: Device) -> None:
    with pytest.raises(DeviceError, match="refuses its extras: refuse=1"):
        virtual_phone.launch(PACKAGE, ".Main", {"refuse": "1"})


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("truncated", r"the frame of 720x1280 ended after \d+ of 3686400 bytes"),
        ("header", "no frame, it starts with"),
        ("empty", "no frame, it starts with b'Capturing fa'"),
        ("black", "black all over: the phone is asleep, locked"),
    ],
)
def test_a_failed_capture_is_an_error_and_never_a_picture(
    virtual_phone: Device, fault: str, complaint: str
) -> None:
    virtual_phone.shell("setprop", "debug.agentrl.capture", fault)
    with pytest.raises(CaptureError, match=complaint):
        virtual_phone.screenshot()
    virtual_phone.shell("setprop", "debug.agentrl.capture", "")
    assert virtual_phone.screenshot().shape == (1280, 720, 3)


class FrameLink:
    """Gives one frame, as `screencap` writes it."""

    def __init__(self, rgba: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        height, width = rgba.shape[:2]
        self._left = struct.pack("<4I", width, height, 1, 0) + rgba.tobytes()

    def read_into(self, view: memoryview) -> int:
        piece, self._left = self._left[: len(view)], self._left[len(view) :]
        view[: len(piece)] = piece
        return len(piece)


def test_one_lit_pixel_is_a_picture_and_opaque_black_is_none() -> None:
    frame = np.zeros((320, 240, 4), np.uint8)
    frame[..., 3] = 255
    with pytest.raises(CaptureError, match="P: the frame of 240x320 is black all over"):
        FrameReader().read(FrameLink(frame), "P")  # type: ignore[arg-type]
    frame[17, 5, 2] = 1
    assert FrameReader().read(FrameLink(frame), "P").sum() == 1  # type: ignore[arg-type]


def test_a_hung_command_ends_at_its_deadline(adb_server: AdbServer) -> None:
    phone = open_device("virtual", deadlines=Deadlines(command_s=0.2))
    start = time.monotonic()
    with pytest.raises(DeviceTimeout, match=r"sleep 30: no answer within 0\.2 s"):
        phone.shell("sleep", "30")
    assert time.monotonic() - start < 3
    assert phone.shell("echo", "on") == "on\n"
    phone.close()


def test_a_phone_that_goes_away_is_offline_within_the_deadline(adb_server: AdbServer) -> None:
    with spawn(1, effect_delay_ms=(0, 0)) as phones:
        phone = AdbutilsDevice(adb_server, phones.serials[0])
        hung: list[Exception] = []

        def wait() -> None:
            try:
                phone.shell("sleep", "30")
            except DeviceError as error:
                hung.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        os.kill(phones.pid, signal.SIGKILL)
        waiting.join(10)
        assert [type(error) for error in hung] == [DeviceOffline]
        start = time.monotonic()
        with pytest.raises(DeviceOffline, match="others are ready"):
            phone.screenshot()
        assert time.monotonic() - start < phone.deadlines.frame_s + 1
    adb_server.disconnect(phones.serials[0])


def test_a_phone_that_reboots_can_be_connected_again(adb_server: AdbServer) -> None:
    with spawn(1, effect_delay_ms=(0, 0)) as phones:
        serial = phones.serials[0]
        phone = AdbutilsDevice(adb_server, serial)
        with contextlib.suppress(DeviceError):  # the answer may be cut off with the connection
            phone.shell("reboot")
        end = time.monotonic() + 20
        while True:
            try:
                adb_server.connect(serial, 5)
                phone.shell("true")
                break
            except DeviceError:
                assert time.monotonic() < end
        adb_server.disconnect(serial)


def test_an_unreachable_serial_is_one_clear_message(adb_server: AdbServer) -> None:
    with spawn(1) as phones, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError) as raised:
            open_source([phones.serials[0], gone])
        told = str(raised.value)
        assert f"{gone} cannot be connected" in told
        assert f"Ready: {phones.serials[0]}." in told
        assert "adb connect" in told
        check_source([phones.serials[0]])
        adb_server.disconnect(phones.serials[0])


@pytest.mark.parametrize("source", ["virtual:0", "virtual:x", "virtual:-1", [], ["a", "a"], [5], 3])
def test_what_is_no_source_says_so(source: object) -> None:
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


def test_closing_a_virtual_phone_ends_it_and_the_server_forgets_it(adb_server: AdbServer) -> None:
    phone = open_device("virtual")
    assert adb_server.devices()[phone.serial] == "device"
    phone.close()
    assert phone.serial not in adb_server.devices()


@pytest.fixture
def silent_server() -> Iterator[AdbServer]:
    """Something on the adb server's port that accepts and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield AdbServer(port=listener.getsockname()[1])


def test_a_silent_server_is_a_timeout(silent_server: AdbServer) -> None:
    with pytest.raises(DeviceTimeout, match=r"host:version: no answer within 0\.1 s"):
        silent_server.ensure(0.1)


def test_a_server_is_started_where_none_runs() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = AdbServer(port=port)
    server.ensure(20)
    try:
        assert server.devices() == {}
    finally:  # it is this test's own, on a port of its own
        with contextlib.suppress(DeviceError):
            server.ask("host:kill", Deadline(5))


def test_a_configured_program_must_exist() -> None:
    with pytest.raises(ConfigError, match="/no/adb is no program"):
        find_adb("/no/adb")


class PiecewiseLink:
    """Gives some bytes in pieces of one length, then its end."""

    def __init__(self, data: bytes, length: int) -> None:
        self._pieces = [data[i : i + length] for i in range(0, len(data), length)]

    def receive(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


@pytest.mark.parametrize("length", [1, 3, 5, 6, 64])
def test_what_a_shell_sends_is_the_same_in_whatever_pieces_it_comes(length: int) -> None:
    sent = b"\1\2\0\0\0ab" + b"\2\0\0\0\0" + b"\3\1\0\0\0\7"
    whole = [(1, b"ab"), (2, b""), (3, b"\7")]
    assert list(_packets(PiecewiseLink(sent, length))) == whole  # type: ignore[arg-type]
    assert list(_packets(PiecewiseLink(sent[:-1], length))) == whole[:2]  # type: ignore[arg-type]


def test_only_commands_whose_exit_code_came_have_a_result() -> None:
    first, second = Result(output="a\n", code=0), Result(output="", code=127)
    assert _results("a\n=m=0\n=m=127\r\n", "=m=") == [first, second]
    assert _results("a\n=m=0\n=m=12", "=m=") == [first]
    assert _results("a\n=m=0\nb", "=m=") == [first]
    assert _results("", "=m=") == []
