"""Phones that are not ready: they boot, are dark, run out of battery, or have another user."""

import threading
from collections.abc import Callable, Iterator

import pytest

from agentrl.devices import Deadlines, Device, PoolOptions, Tap, open_device, open_source
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb.app_commands import has_package
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.phone_battery import BatteryWatch
from agentrl.errors import AppNotInFront, CaptureError, DeviceError, DeviceTimeout, NoDevice

pytestmark = pytest.mark.adb
PROBE, SHOP = "org.agentrl.probe", "com.example.shop/.Main"


@pytest.fixture
def phone(adb_server: AdbServer, unused_serial: str, opened: Callable[..., AdbPhone]) -> AdbPhone:
    return opened(unused_serial, launch_s=0.5)


def fault(phone: Device, name: str, value: str) -> None:
    phone.shell("setprop", f"debug.agentrl.fault.{name}", value)


@pytest.fixture
def dark(phone: AdbPhone) -> AdbPhone:
    phone.shell("input", "keyevent", "POWER")
    return phone


def test_a_dark_phone_says_what_is_wrong(dark: AdbPhone) -> None:
    with pytest.raises(
        DeviceTimeout, match=r"its screen is off; set devices\.wake=true to wake it"
    ):
        dark.launch(PROBE, ".Main", {})
    with pytest.raises(CaptureError, match=r"devices\.wake=true"):
        dark.screenshot()
    dark.shell("input", "keyevent", "WAKEUP")
    with pytest.raises(DeviceTimeout, match="its screen is locked"):
        dark.launch(PROBE, ".Main", {})


def test_a_dark_phone_is_woken_when_it_is_opened_if_asked(dark: AdbPhone) -> None:
    for wake in (False, True):
        phone = open_device(dark.serial, capture="raw", input="shell", wake=wake)
        assert (phone.focus() == "org.agentrl.launcher") == wake
        phone.close()


async def test_a_phone_that_goes_dark_is_woken_before_the_next_episode(phone: AdbPhone) -> None:
    with open_source(phone.serial, capture="raw", input="shell", wake=True) as pool:
        for _ in range(2):
            async with pool.lease(5) as lease:
                lease.launch(PROBE, ".Main", {})
                lease.screenshot()
            phone.shell("input", "keyevent", "POWER")


def test_opening_waits_until_android_has_started(phone: AdbPhone) -> None:
    phone.shell("setprop", "sys.boot_completed", "")
    starts = threading.Timer(0.6, lambda: phone.shell("setprop", "sys.boot_completed", "1"))
    starts.start()
    open_device(phone.serial, capture="raw", input="shell").close()
    assert not starts.is_alive()
    phone.shell("setprop", "sys.boot_completed", "0")
    with pytest.raises(DeviceTimeout, match=r"did not finish booting within 0\.1 s"):
        open_device(phone.serial, deadlines=Deadlines(boot_s=0.1))


@pytest.mark.parametrize(
    ("battery", "what"), [(("level", "9"), "low; charge it"), (("temp", "510"), "hot; let it")]
)
async def test_a_phone_with_an_unfit_battery_is_not_leased(
    phone: AdbPhone, battery: tuple[str, str], what: str
) -> None:
    phone.shell("dumpsys", "battery", "unplug")
    options = PoolOptions(quarantine_s=0.2, patience_s=60.0)
    with open_source(phone.serial, options=options, capture="raw", input="shell") as pool:
        phone.shell("dumpsys", "battery", "set", *battery)
        with pytest.raises(NoDevice, match=what):
            async with pool.lease(1.0):
                pass
        (stats,) = pool.stats()
        assert stats.quarantined
        assert not stats.recoveries  # a reboot would not charge it
        phone.shell("dumpsys", "battery", "reset")
        async with pool.lease(20.0):
            pass


def test_a_low_battery_is_reported_once(phone: AdbPhone, caplog: pytest.LogCaptureFixture) -> None:
    watch = BatteryWatch()
    phone.shell("dumpsys", "battery", "unplug")
    phone.shell("dumpsys", "battery", "set", "level", "15")
    for _ in range(2):
        watch.check(phone)
    assert caplog.text.count("battery at 15%, not charging") == 1
    phone.shell("dumpsys", "battery", "set", "level", "3")
    watch.check(phone)  # it was read less than a minute ago
    with pytest.raises(DeviceError, match="is too low; charge it"):
        BatteryWatch().check(phone)


def test_an_app_of_another_user_counts_if_that_user_is_in_front(phone: AdbPhone) -> None:
    assert has_package(phone, PROBE)
    fault(phone, "user", "10")
    assert f"package:{PROBE}" not in phone.shell("pm", "list", "packages")
    assert has_package(phone, PROBE)


@pytest.fixture
def folded(phone: AdbPhone) -> Iterator[Device]:
    """A phone with a dark second display, whose focused window comes first."""
    fault(phone, "second_display", SHOP)
    device = open_device(phone.serial, capture="raw", input="shell")
    yield device
    device.close()


@pytest.mark.parametrize("capture", ["raw", "png"])
def test_the_display_that_shows_apps_is_captured(folded: Device, capture: str) -> None:
    folded.launch(PROBE, ".Main", {})
    device = open_device(folded.serial, capture=capture, input="shell")
    assert device.screenshot().shape == (1280, 720, 3)
    device.close()


def test_the_window_in_front_is_that_of_the_display_with_the_app(folded: Device) -> None:
    folded.launch(PROBE, ".Main", {})
    assert folded.focus() == folded.window().package == PROBE
    folded.perform(Tap(0.5, 0.25))
    _, look = folded.send_action(Tap(0.5, 0.25), PROBE, [PROBE])
    assert look.front == PROBE
    with pytest.raises(AppNotInFront):
        folded.send_action(Tap(0.5, 0.25), PROBE, [SHOP])
