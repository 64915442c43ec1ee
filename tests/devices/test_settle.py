from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np
import pytest

from agentrl.devices import (
    Deadlines,
    Device,
    Key,
    Result,
    Swipe,
    Tap,
    Wait,
    act_and_settle,
    open_device,
    settle,
)
from agentrl.devices.adb import AdbServer
from agentrl.errors import DeviceTimeout
from agentrl.types import Image

pytestmark = pytest.mark.adb
PROBE = "agentrl.phone.apps:ProbeApp"
PACKAGE = "org.agentrl.probe"
LAUNCHER = "org.agentrl.launcher"
TOP, NOWHERE, STATUS_BAR = Tap(0.5, 0.25), Tap(0.5, 0.52), Tap(0.5, 0.01)


@pytest.fixture(scope="module")
def slow_phone(adb_server: AdbServer) -> Iterator[Device]:
    """A phone whose effects come as late as on a real one."""
    device = open_device("virtual", apps=[PROBE])
    yield device
    device.close()


@pytest.fixture
def phone(slow_phone: Device) -> Device:
    slow_phone.launch(PACKAGE, ".Main", {})
    return slow_phone


@pytest.mark.parametrize("package", [PACKAGE, None])
def test_the_screen_from_before_the_effect_is_never_returned(
    phone: Device, package: str | None
) -> None:
    before = phone.screenshot()
    for touches in range(1, 7):
        settled = act_and_settle(phone, TOP, before=before, package=package)
        assert settled.changed
        assert settled.seconds >= 0.05
        assert phone.app_state(PACKAGE)["halves"] == [touches % 4, 1]
        assert np.array_equal(settled.frame, phone.screenshot())
        before = settled.frame


@pytest.mark.parametrize("action", [NOWHERE, STATUS_BAR, Key("MENU")])
def test_an_action_without_effect_is_known_as_such_without_waiting_for_the_deadline(
    phone: Device, action: Tap | Key
) -> None:
    before, touches = phone.screenshot(), phone.app_state(PACKAGE)["touches"]
    settled = act_and_settle(phone, action, before=before, package=PACKAGE, settle_s=30)
    assert not settled.changed
    assert settled.state is not None
    assert settled.state["touches"] == touches + 1
    assert settled.seconds < 10


def test_the_clock_alone_is_no_change(phone: Device) -> None:
    first = before = phone.screenshot()
    for _ in range(13):
        settled = act_and_settle(phone, NOWHERE, before=before, package=PACKAGE)
        assert not settled.changed
        before = settled.frame
    assert not np.array_equal(first, before), "the clock must have moved"


def test_without_a_published_state_no_effect_is_known_at_the_deadline(phone: Device) -> None:
    before = phone.screenshot()
    settled = act_and_settle(phone, NOWHERE, before=before, settle_s=0.6)
    assert not settled.changed
    assert settled.seconds >= 0.6


def test_swipes_keys_and_waits_settle_too(phone: Device) -> None:
    before = phone.screenshot()
    settled = act_and_settle(phone, Swipe(0.5, 0.8, 0.5, 0.2), before=before, package=PACKAGE)
    assert settled.changed
    settled = act_and_settle(phone, Wait(0.01), before=settled.frame, package=PACKAGE)
    assert not settled.changed
    settled = act_and_settle(phone, Key("BACK"), before=settled.frame, package=PACKAGE)
    assert settled.changed
    assert phone.focus() == settled.front != PACKAGE


@pytest.mark.parametrize("package", [PACKAGE, None])
def test_what_is_in_front_after_the_effect_is_told_where_a_package_was_asked_about(
    phone: Device, package: str | None
) -> None:
    before = phone.screenshot()
    for action, front in ((TOP, PACKAGE), (Wait(0.0), PACKAGE), (Key("HOME"), LAUNCHER)):
        settled = act_and_settle(phone, action, before=before, package=package)
        assert settled.front == (None if package is None else front)
        before = settled.frame


def test_one_band_of_the_screen_that_differs_is_a_change() -> None:
    before = np.zeros((1280, 720, 3), np.uint8)
    watch = settle._Watch(None, before, 1.0)  # type: ignore[arg-type]
    watch.mask_top = 1 / 26
    for row, same in (
        (0, True),
        (48, True),
        (49, False),
        (177, False),
        (700, False),
        (1279, False),
    ):
        after = before.copy()
        after[row, 719] = 9
        assert watch._same(before, after) == same, row
    assert watch._same(before, before + 8)


@pytest.fixture
def fault(phone: Device) -> Iterator[Callable[..., None]]:
    """Sets one of the phone's faults, until the end of the test."""

    def set_fault(**faults: str) -> None:
        for name, value in faults.items():
            phone.shell("setprop", f"debug.agentrl.{name}", value)

    yield set_fault
    set_fault(**dict.fromkeys(("input", "focus"), ""))


@pytest.mark.parametrize("focus", ["", "null", f"Application Not Responding: {PACKAGE}"])
def test_an_app_in_front_that_never_handles_the_touch_is_a_timeout(
    phone: Device, fault: Callable[..., None], focus: str
) -> None:
    fault(input="lost", focus=focus)
    before = phone.screenshot()
    with pytest.raises(DeviceTimeout, match="did not handle input tap"):
        act_and_settle(phone, TOP, before=before, package=PACKAGE, settle_s=0.3)


@pytest.mark.parametrize("window", ["NotificationShade", "com.android.settings/.Main"])
def test_a_touch_that_the_system_took_tells_what_is_in_front(
    phone: Device, fault: Callable[..., None], window: str
) -> None:
    fault(input=window)
    before, state = phone.screenshot(), phone.app_state(PACKAGE)
    settled = act_and_settle(phone, TOP, before=before, package=PACKAGE, settle_s=0.5)
    assert settled.front == window.partition("/")[0]
    assert settled.state == state


def test_a_touch_beside_the_app_tells_what_is_in_front(phone: Device) -> None:
    before, state = phone.screenshot(), phone.app_state(PACKAGE)
    act_and_settle(phone, Key("HOME"), before=before, package=PACKAGE)
    before = phone.screenshot()
    settled = act_and_settle(phone, NOWHERE, before=before, package=PACKAGE, settle_s=0.5)
    assert settled.front == LAUNCHER
    assert not settled.changed
    assert settled.state is not None
    assert settled.state["touches"] == state["touches"] + 1, "of the key alone"


class FlickeringDevice:
    """Something else is in front, and its screen never stands still."""

    serial = "flickering"
    deadlines = Deadlines(settle_s=0.1)
    looks = 0

    def size(self) -> tuple[int, int]:
        return 64, 64

    def batch(self, *commands: Sequence[str]) -> list[Result]:
        window = "mCurrentFocus=Window{a u0 com.android.systemui}"
        outputs = {"cat": '{"touches": 3}', "dumpsys": window}
        return [Result(output=outputs.get(command[0], ""), code=0) for command in commands]

    def screenshot(self) -> Image:
        self.looks += 1
        return np.full((64, 64, 3), self.looks * 16 % 256, np.uint8)


def test_a_screen_that_never_rests_is_no_way_to_void_a_game_that_was_left() -> None:
    before = np.zeros((64, 64, 3), np.uint8)
    device = cast(Device, FlickeringDevice())
    settled = act_and_settle(device, TOP, before=before, package=PACKAGE)
    assert (settled.front, settled.state) == ("com.android.systemui", {"touches": 3})
    assert settled.changed


def test_with_effects_at_once_two_captures_are_enough(virtual_phone: Device) -> None:
    before = virtual_phone.screenshot()
    settled = act_and_settle(virtual_phone, TOP, before=before, package=PACKAGE)
    assert settled.changed
    assert settled.captures == 2
