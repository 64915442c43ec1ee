import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from agentrl.devices import (
    Deadlines,
    Device,
    Done,
    Drag,
    Key,
    LongPress,
    Swipe,
    Tap,
    Type,
    Wait,
    open_device,
)
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb.app_commands import parse_counted_state
from agentrl.devices.adb.drivers import socket_class
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.device import CommandResult, Window
from agentrl.devices.device_opener import DeviceOpener
from agentrl.errors import AppNotInFront, ConfigError, DeviceError, DeviceOffline, DeviceTimeout
from agentrl.extension_points import DRIVER
from tests.devices.conftest import WatchedPhone
from virtual_phone import spawn

pytestmark = pytest.mark.adb
PACKAGE = "org.agentrl.probe"


@pytest.fixture(params=DRIVER.names())
def phone(unused_serial: str, request: pytest.FixtureRequest) -> Iterator[Device]:
    """A phone of its own for one test, with the probe in front, by each driver."""
    device = DeviceOpener(driver=request.param).open(unused_serial, known=True)
    device.launch(PACKAGE, ".Main", {})
    yield device
    device.close()


def test_a_phone_is_driven_from_launch_to_stop(phone: Device) -> None:
    assert phone.size() == (720, 1280)
    phone.launch(PACKAGE, ".Main", {"level": "2 hard", "quote": "it's"})
    assert phone.focus() == PACKAGE
    before = phone.screenshot()
    assert (before.shape, before.dtype) == ((1280, 720, 3), np.uint8)
    phone.perform(Tap(0.5, 0.25))
    phone.perform(Swipe(0.5, 0.9, 0.5, 0.2), 0.1)
    phone.perform(Key("ENTER"))
    phone.perform(Type("50 %s it's"))
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


def test_long_press_and_drag_arrive(phone: Device) -> None:
    phone.perform(LongPress(0.5, 0.25), 0.5)
    x1, y1, x2, y2, ms = phone.app_state(PACKAGE)["last"]
    assert (x1, y1, ms) == (x2, y2, 500)
    phone.perform(Drag(0.5, 0.9, 0.5, 0.2), 0.4)
    x1, y1, x2, y2, ms = phone.app_state(PACKAGE)["last"]
    assert y1 > y2
    assert ms == 400


def test_an_action_returns_the_looks_before_and_after_it(phone: Device) -> None:
    before, after = phone.send_action(Tap(0.5, 0.25), PACKAGE)
    assert before.state is not None
    assert after.state is not None
    assert after.state["touches"] == before.state["touches"] + 1
    assert after.front == PACKAGE
    _, after = phone.send_action(Type("it's"), PACKAGE)
    assert after.state is not None
    assert after.state["text"] == "it's"
    touches = after.state["touches"]
    for nothing in (Wait(0.01), Done(), Type("")):
        before, after = phone.send_action(nothing, PACKAGE)
        assert before.state is not None
        assert after.state is not None
        assert before.state["touches"] == after.state["touches"] == touches
    assert phone.look("org.absent").state is None
    assert phone.look("org.absent").front == PACKAGE


@pytest.mark.parametrize(
    "window",
    [
        "com.android.chrome/.Main",
        f"com.{PACKAGE}/.Main",
        f"{PACKAGE}.two/.Main",
        f"{PACKAGE.replace('.', 'x')}/.Main",
        f"Application Error: {PACKAGE}",
        "NotificationShade",
        "null",
    ],
)
def test_an_action_is_only_performed_in_the_given_packages(phone: Device, window: str) -> None:
    allowed = (PACKAGE, "com.example.pay")
    touches = phone.app_state(PACKAGE)["touches"]
    phone.shell("setprop", "debug.agentrl.fault.focus", window)
    for action in (Tap(0.5, 0.25), Wait(0)):
        with pytest.raises(AppNotInFront, match=f"com.example.pay or {PACKAGE} is not in front"):
            phone.send_action(action, PACKAGE, allowed)
    for front in (f"{PACKAGE}/.Main", "com.example.pay/com.example.pay.Main", ""):
        phone.shell("setprop", "debug.agentrl.fault.focus", front)
        phone.send_action(Tap(0.5, 0.25), PACKAGE, allowed)
    phone.shell("setprop", "debug.agentrl.fault.focus", "")
    assert phone.app_state(PACKAGE)["touches"] == touches + 3


def test_an_action_that_the_phone_refuses_is_an_error(phone: Device) -> None:
    with pytest.raises(ValueError, match="outside"):
        phone.send_action(Tap(1.5, 0.25), PACKAGE)
    with pytest.raises(DeviceError, match="is not a package name"):
        phone.send_action(Tap(0.5, 0.25), "../etc")


def test_the_serialno_does_not_depend_on_the_connection(phone: Device) -> None:
    assert phone.serialno() == phone.shell("getprop", "ro.serialno").strip()
    assert phone.serialno() != phone.serial


def test_a_touch_on_a_rotated_screen_hits_before_any_capture(
    adb_server: AdbServer, phone: Device
) -> None:
    phone.shell("setprop", "debug.agentrl.fault.rotation", "1")
    with closing(AdbPhone(adb_server, phone.serial)) as other:
        other.perform(Tap(0.3, 0.6))
        assert other.size() == (1280, 720)
    x, y = phone.app_state(PACKAGE)["last"][:2]
    assert (x, y) == pytest.approx((0.3, 0.6), abs=0.1)


def test_a_screenshot_belongs_to_its_caller(virtual_phone: Device) -> None:
    first = virtual_phone.screenshot()
    copy = first.copy()
    virtual_phone.perform(Tap(0.5, 0.25))
    virtual_phone.screenshot()
    assert np.array_equal(first, copy)


def test_a_failing_command_is_reported_with_its_exit_code_and_output(virtual_phone: Device) -> None:
    with pytest.raises(
        DeviceError, match=r"cat /nowhere failed with exit code 1: cat: /nowhere: No"
    ):
        virtual_phone.shell("cat", "/nowhere")


def test_an_app_that_refuses_its_extras_is_an_error(virtual_phone: Device) -> None:
    with pytest.raises(DeviceError, match="refuses its extras: refuse=1"):
        virtual_phone.launch(PACKAGE, ".Main", {"refuse": "1"})


@pytest.mark.parametrize("driver", DRIVER.names())
def test_a_hung_command_ends_at_its_deadline(unused_serial: str, driver: str) -> None:
    opener = DeviceOpener(driver=driver, deadlines=Deadlines(command_s=1.0))
    phone = opener.open(unused_serial, known=True)
    start = time.monotonic()
    with pytest.raises(DeviceTimeout, match=r"sleep 30: no answer within 1 s"):
        phone.shell("sleep", "30")
    assert time.monotonic() - start < 15
    assert phone.shell("echo", "on") == "on\n"
    phone.close()


def test_a_gesture_may_take_longer_than_the_deadline_of_a_command(adb_server: AdbServer) -> None:
    with spawn(1) as phones:
        deadlines = Deadlines(command_s=0.5)
        phone = AdbPhone(AdbServer(port=adb_server.port), phones.serials[0], deadlines=deadlines)
        start = time.monotonic()
        phone.perform(Swipe(0.5, 0.8, 0.5, 0.2), 0.8)
        assert 0.8 <= time.monotonic() - start < 1.3
        phone.close()
    adb_server.disconnect(phones.serials[0])


@pytest.mark.parametrize("driver", DRIVER.names())
def test_a_phone_that_goes_away_is_offline_within_the_deadline(
    adb_server: AdbServer, driver: str
) -> None:
    with spawn(1, tempo="quick") as phones:
        phone = AdbPhone(AdbServer(port=adb_server.port, driver=driver), phones.serials[0])
        hung: list[Exception] = []

        def wait() -> None:
            try:
                phone.shell("sleep", "30")
            except DeviceError as error:
                hung.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        phone.focus()  # so that a shell is kept
        os.kill(phones.pid, signal.SIGKILL)
        waiting.join(10)
        assert [type(error) for error in hung] == [DeviceOffline]
        gone = rf"{phone.serial}: sleep 30: the shell ended .*\. {phone.serial} is .* are ready"
        assert re.match(gone, str(hung[0]), re.DOTALL)
        assert isinstance(hung[0].__cause__, ConnectionError), "the cause is kept"
        start = time.monotonic()
        with pytest.raises(DeviceOffline, match="others are ready"):
            phone.screenshot()
        with pytest.raises(DeviceOffline, match="others are ready"):
            phone.focus()
        with pytest.raises(DeviceOffline, match="others are ready"):
            phone.reboot()
        assert time.monotonic() - start < phone.deadlines.frame_s + 1
        phone.close()
    adb_server.disconnect(phones.serials[0])


def test_a_phone_that_reboots_can_be_connected_again(
    adb_server: AdbServer, unused_serial: str
) -> None:
    phone = AdbPhone(adb_server, unused_serial)
    assert phone.focus() is not None
    phone.reboot()
    end = time.monotonic() + 20
    while True:
        try:
            phone.reconnect()
            assert phone.focus() is not None, "the shell that was kept is a new one"
            break
        except DeviceError:
            assert time.monotonic() < end
    phone.close()


def test_an_unknown_driver_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ppadb'"):
        open_device("virtual", driver="ppad")


def test_a_driver_whose_library_is_not_installed_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ppadb.connection", None)
    monkeypatch.delitem(sys.modules, "agentrl.devices.adb.drivers.ppadb", raising=False)
    socket_class.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install 'agentrl-screens\[ppadb\]'"):
        open_device("virtual", driver="ppadb")


@pytest.mark.parametrize("sdk", ["28", "34"])
def test_the_foreground_is_parsed_for_every_android_version(
    adb_server: AdbServer, watched_phone: WatchedPhone, sdk: str
) -> None:
    watched_phone.phone.properties["ro.build.version.sdk"] = sdk
    with closing(AdbPhone(adb_server, watched_phone.serial)) as device:
        device.launch(PACKAGE, ".Main", {})
        assert device.focus() == PACKAGE
        assert device.window() == Window(kind="foreign_app", package=PACKAGE)
        device.send_action(Tap(0.5, 0.25), PACKAGE, {PACKAGE})
        with pytest.raises(AppNotInFront):
            device.send_action(Tap(0.5, 0.25), PACKAGE, {"org.other"})
    watched_phone.phone.properties["ro.build.version.sdk"] = "34"


def test_a_title_with_a_line_break_is_not_the_foreground(
    adb_server: AdbServer, watched_phone: WatchedPhone
) -> None:
    title = f"org.other/.Main\n  mCurrentFocus=Window{{a u0 {PACKAGE}/.Main"
    with closing(AdbPhone(adb_server, watched_phone.serial)) as device:
        device.launch(PACKAGE, ".Main", {})
        device.shell("setprop", "debug.agentrl.fault.focus", title)
        assert device.focus() == "org.other"
        with pytest.raises(AppNotInFront):
            device.send_action(Tap(0.5, 0.25), PACKAGE, {PACKAGE})
        device.shell("setprop", "debug.agentrl.fault.focus", "")


@pytest.mark.parametrize("touches", ['"7"', "NaN", "null", "[]", "{}", "true", "2.5", "9" * 5000])
def test_a_state_without_an_integer_touch_count_is_none(touches: str) -> None:
    assert parse_counted_state(CommandResult(output=f'{{"touches": {touches}}}', code=0)) is None
