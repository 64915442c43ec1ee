import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import cast

import numpy as np
import pytest

from agentrl.devices import (
    Action,
    Deadlines,
    Device,
    Done,
    Key,
    Look,
    Swipe,
    Tap,
    Wait,
    act_and_settle,
    open_device,
)
from agentrl.devices.adb import AdbServer
from agentrl.errors import CaptureError, DeviceTimeout
from agentrl.types import Image

pytestmark = pytest.mark.adb
PROBE = "virtual_phone.apps.probe_app:ProbeApp"
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
def test_an_action_without_effect_does_not_wait_for_the_deadline(
    phone: Device, action: Tap | Key
) -> None:
    before, touches = phone.screenshot(), phone.app_state(PACKAGE)["touches"]
    settled = act_and_settle(phone, action, before=before, package=PACKAGE, settle_s=30)
    assert not settled.changed
    assert settled.state is not None
    assert settled.state["touches"] == touches + 1
    assert settled.seconds < 10


def test_the_clock_alone_is_not_a_change(phone: Device) -> None:
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
    assert settled.effect_s is None
    assert settled.seconds >= 0.6


def test_swipes_keys_and_waits_settle_too(phone: Device) -> None:
    before = phone.screenshot()
    settled = act_and_settle(phone, Swipe(0.5, 0.8, 0.5, 0.2), before=before, package=PACKAGE)
    assert settled.changed
    for nothing in (Wait(0.01), Done()):
        settled = act_and_settle(phone, nothing, before=settled.frame, package=PACKAGE)
        assert not settled.changed
    settled = act_and_settle(phone, Key("BACK"), before=settled.frame, package=PACKAGE)
    assert settled.changed
    assert phone.focus() == settled.front != PACKAGE


@pytest.mark.parametrize("package", [PACKAGE, None])
def test_the_foreground_is_reported_if_a_package_was_given(
    phone: Device, package: str | None
) -> None:
    before = phone.screenshot()
    for action, front in ((TOP, PACKAGE), (Wait(0.0), PACKAGE), (Key("HOME"), LAUNCHER)):
        settled = act_and_settle(phone, action, before=before, package=package)
        assert settled.front == (None if package is None else front)
        before = settled.frame


@pytest.fixture
def fault(phone: Device) -> Iterator[Callable[..., None]]:
    """Sets one of the phone's faults, until the end of the test."""

    def set_fault(**faults: str) -> None:
        for name, value in faults.items():
            phone.shell("setprop", f"debug.agentrl.fault.{name}", value)

    yield set_fault
    set_fault(**dict.fromkeys(("input", "focus", "capture"), ""))


@pytest.mark.parametrize("focus", ["", "null", f"Application Not Responding: {PACKAGE}"])
def test_an_app_in_front_that_never_handles_the_touch_is_a_timeout(
    phone: Device, fault: Callable[..., None], focus: str
) -> None:
    fault(input="lost", focus=focus)
    before = phone.screenshot()
    with pytest.raises(DeviceTimeout, match=r"did not handle Tap\(x=0\.5"):
        act_and_settle(phone, TOP, before=before, package=PACKAGE, settle_s=0.3)


@pytest.mark.parametrize("window", ["NotificationShade", "com.android.settings/.Main"])
def test_a_touch_handled_by_the_system_reports_the_foreground(
    phone: Device, fault: Callable[..., None], window: str
) -> None:
    fault(input=window)
    before, state = phone.screenshot(), phone.app_state(PACKAGE)
    settled = act_and_settle(phone, TOP, before=before, package=PACKAGE, settle_s=0.5)
    assert settled.front == window.partition("/")[0]
    assert settled.state == state


def test_a_touch_outside_the_app_reports_the_foreground(phone: Device) -> None:
    before, state = phone.screenshot(), phone.app_state(PACKAGE)
    act_and_settle(phone, Key("HOME"), before=before, package=PACKAGE)
    before = phone.screenshot()
    settled = act_and_settle(phone, NOWHERE, before=before, package=PACKAGE, settle_s=0.5)
    assert settled.front == LAUNCHER
    assert not settled.changed
    assert settled.state is not None
    assert settled.state["touches"] == state["touches"] + 1, "of the key alone"


def test_a_capture_that_fails_briefly_is_retried(phone: Device, fault: Callable[..., None]) -> None:
    before = phone.screenshot()
    fault(capture="black")
    recovery = threading.Timer(0.3, lambda: fault(capture=""))
    recovery.start()
    settled = act_and_settle(phone, TOP, before=before, package=PACKAGE, settle_s=20)
    recovery.join()
    assert settled.changed
    fault(capture="black")
    with pytest.raises(CaptureError, match="is all black"):
        act_and_settle(phone, TOP, before=settled.frame, package=PACKAGE, settle_s=0.5)


def test_a_stale_capture_is_detected_by_the_changed_state(
    phone: Device, fault: Callable[..., None]
) -> None:
    before = phone.screenshot()
    fault(capture="stale")
    with pytest.raises(CaptureError, match="the captures are stale"):
        act_and_settle(phone, TOP, before=before, package=PACKAGE, settle_s=1.0, state_shows=True)
    fault(capture="")
    before = phone.screenshot()
    settled = act_and_settle(phone, TOP, before=before, package=PACKAGE, state_shows=True)
    assert settled.changed
    settled = act_and_settle(
        phone, STATUS_BAR, before=settled.frame, package=PACKAGE, settle_s=20, state_shows=True
    )
    assert not settled.changed
    assert settled.seconds < 10, "nothing new was published"


class FlickeringDevice:
    """Something else is in front, and its screen never stands still."""

    serial = "flickering"
    deadlines = Deadlines(settle_s=0.1)
    looks = 0

    def look(self, package: str) -> Look:
        return Look(state={"touches": 3}, front="com.android.systemui")

    def send_action(
        self, action: Action, package: str, only_in: Collection[str] | None = None
    ) -> tuple[Look, Look]:
        return self.look(package), self.look(package)

    def screenshot(self) -> Image:
        self.looks += 1
        return np.full((64, 64, 3), self.looks * 16 % 256, np.uint8)

    def screenshot_and_front(self) -> tuple[Image, str | None]:
        return self.screenshot(), None


def test_leaving_the_app_counts_even_if_the_screen_never_rests() -> None:
    before = np.zeros((64, 64, 3), np.uint8)
    device = cast(Device, FlickeringDevice())
    settled = act_and_settle(device, TOP, before=before, package=PACKAGE)
    assert (settled.front, settled.state) == ("com.android.systemui", {"touches": 3})
    assert settled.changed


def test_with_immediate_effects_two_captures_are_enough(virtual_phone: Device) -> None:
    before = virtual_phone.screenshot()
    settled = act_and_settle(virtual_phone, TOP, before=before, package=PACKAGE)
    assert settled.changed
    assert settled.captures == 2
    settled = act_and_settle(
        virtual_phone, TOP, before=settled.frame, package=PACKAGE, min_captures=5
    )
    assert settled.captures == 5


SIDE = 100


class PlayedDevice:
    """A screen that shows one picture after the other, each from a moment after the tap on."""

    serial = "played"
    deadlines = Deadlines(settle_s=2.0)

    def __init__(self, *shown: tuple[float, Image]) -> None:
        self._shown = shown
        self._start_s = float("inf")
        self.moving: Callable[[Image], None] = lambda picture: None
        """Draws what moves on its own."""

    def perform(self, action: Action) -> None:
        self._start_s = time.monotonic()

    def screenshot(self) -> Image:
        elapsed_s = time.monotonic() - self._start_s
        picture = [picture for at_s, picture in self._shown if at_s <= max(elapsed_s, 0)][-1].copy()
        self.moving(picture)
        return picture


def grey(level: int, *, box: tuple[slice, slice] = (slice(None), slice(None))) -> Image:
    picture = np.full((SIDE, SIDE, 3), 50, np.uint8)
    picture[box] = level
    return picture


def settled_on(device: PlayedDevice, **options: object) -> tuple[int, bool, float | None]:
    """The middle pixel of the settled screen, whether it changed, and when."""
    settled = act_and_settle(
        cast(Device, device),
        TOP,
        before=grey(50),
        mask_top=0.0,
        **options,  # type: ignore[arg-type]
    )
    return int(settled.frame[SIDE // 2, SIDE // 2, 0]), settled.changed, settled.effect_s


def test_a_second_effect_after_the_first_is_waited_for() -> None:
    steps = ((0.0, grey(50)), (0.1, grey(100)), (0.25, grey(200)))
    middle, changed, effect_s = settled_on(PlayedDevice(*steps), quiet_s=0.4)
    assert (middle, changed) == (200, True)
    assert effect_s is not None
    assert 0.1 <= effect_s < 0.25
    assert settled_on(PlayedDevice(*steps), quiet_s=0.0)[0] == 100


def blink(picture: Image) -> None:
    """A cursor of 3 by 10 pixels that is there every other tenth of a second."""
    if int(time.monotonic() * 10) % 2:
        picture[10:20, 10:13] = 255


def test_on_a_moving_screen_without_published_state_the_effect_is_waited_for() -> None:
    device = PlayedDevice((0.0, grey(50)), (0.3, grey(200)))
    device.moving = blink
    settled = act_and_settle(cast(Device, device), TOP, before=grey(50), mask_top=0.0, moving=True)
    assert settled.frame[SIDE // 2, SIDE // 2, 0] == 200
    assert settled.captures == 1
    assert settled.seconds < 1.0


frames = itertools.count()


def rush(picture: Image) -> None:
    """A bar that is somewhere else in each capture."""
    picture[next(frames) % 40 :][:10] = 255


def test_a_screen_that_never_rests_costs_the_deadline_only_once() -> None:
    device = PlayedDevice((0.0, grey(50)), (0.2, grey(200)))
    device.moving = rush
    settled = act_and_settle(cast(Device, device), TOP, before=grey(50), mask_top=0.0, settle_s=0.8)
    assert settled.moves
    assert settled.frame[SIDE // 2, SIDE // 2, 0] == 200
    settled = act_and_settle(
        cast(Device, device), TOP, before=settled.frame, mask_top=0.0, moving=settled.moves
    )
    assert settled.seconds < 0.8, "of a deadline of 2 s"
    assert settled.moves
    device.moving = lambda picture: None
    for moves in (True, False):  # the first capture still differs from the one before
        settled = act_and_settle(
            cast(Device, device), TOP, before=settled.frame, mask_top=0.0, moving=settled.moves
        )
        assert settled.moves == moves


CURSOR = (0.1, 0.1, 0.13, 0.2)


def test_an_ignored_blinking_cursor_is_not_an_effect() -> None:
    device = PlayedDevice((0.0, grey(50)), (0.3, grey(200)))
    device.moving = blink
    middle, changed, effect_s = settled_on(device, ignore=[CURSOR])
    assert (middle, changed) == (200, True)
    assert effect_s is not None
    assert effect_s >= 0.3
    nothing = PlayedDevice((0.0, grey(50)))
    nothing.moving = blink
    middle, changed, effect_s = settled_on(nothing, settle_s=0.5, ignore=[CURSOR])
    assert (changed, effect_s) == (False, None)


def test_without_ignoring_it_a_blinking_cursor_is_taken_for_an_effect() -> None:
    device = PlayedDevice((0.0, grey(50)))
    device.moving = blink
    assert settled_on(device, settle_s=0.5)[1:] != (False, None)
