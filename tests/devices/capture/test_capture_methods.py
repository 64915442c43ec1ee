"""Every capture against a virtual phone and the real adb server."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from agentrl.devices import Device, Tap, act_and_settle, open_device
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.capture import h264_stream, screencap
from agentrl.devices.capture.picture_checks import images_match
from agentrl.errors import CaptureError, DeviceError

pytestmark = pytest.mark.adb
PACKAGE = "org.agentrl.probe"
EXACT = ("raw", "png", "framebuffer")
ALL = (*EXACT, "stream")


@pytest.fixture
def phone(virtual_serial: str, opened: Callable[..., AdbPhone]) -> Iterator[AdbPhone]:
    device = opened(virtual_serial)
    device.launch(PACKAGE, ".Main", {})
    yield device
    for fault in ("capture", "rotation"):
        device.shell("setprop", f"debug.agentrl.fault.{fault}", "")


@pytest.mark.parametrize("capture", EXACT)
def test_every_capture_shows_the_same_picture_and_its_changes(
    phone: AdbPhone, capture: str
) -> None:
    before = phone.screenshot()
    phone.use(capture=capture)
    assert np.array_equal(phone.screenshot(), before)
    phone.perform(Tap(0.5, 0.25))
    after = phone.screenshot()
    assert not np.array_equal(after, before)
    phone.use(capture="raw")
    assert np.array_equal(phone.screenshot(), after)


@pytest.mark.parametrize("capture", EXACT)
def test_an_unchanged_screen_is_not_converted_again(phone: AdbPhone, capture: str) -> None:
    phone.use(capture=capture)
    first = phone.screenshot()
    assert phone.screenshot() is first
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 0
    kept = first.copy()
    phone.perform(Tap(0.5, 0.25))
    assert not np.array_equal(phone.screenshot(), first)
    assert np.array_equal(first, kept)
    phone.shell("setprop", "debug.agentrl.fault.capture", "truncated")
    with pytest.raises(CaptureError):
        phone.screenshot()


def test_a_turn_on_a_phone_that_sends_changes_opens_no_connection(
    phone: AdbPhone, virtual_serial: str, opened: Callable[..., AdbPhone],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(screencap, "_LARGE", 10_000_000)  # the app redraws its whole screen
    before, other = phone.screenshot(), opened(virtual_serial)
    phone.use(capture="png")
    other_view = phone.screenshot()
    phone.use(capture="raw")
    assert np.array_equal(before, other_view)
    phone.screenshot()
    phone.screenshot()
    with monkeypatch.context() as patch:
        patch.setattr(phone.transport, "open", None)
        for number in range(3):
            settled = act_and_settle(phone, Tap(0.5, 0.25), before=before, package=PACKAGE)
            assert settled.changed, number
            assert settled.front_at_end == PACKAGE
            before = settled.frame
    other.use(capture="png")
    assert np.array_equal(before, other.screenshot())


def test_a_phone_that_sends_changes_is_captured_again_after_it_has_slept(phone: AdbPhone) -> None:
    for _ in range(3):
        phone.screenshot()
    phone.shell("input", "keyevent", "KEYCODE_SLEEP")
    try:
        with pytest.raises(CaptureError, match="is all black"):
            phone.screenshot()
    finally:
        phone.shell("input", "keyevent", "KEYCODE_WAKEUP")
        phone.shell("input", "keyevent", "KEYCODE_MENU")
    after = phone.screenshot()
    phone.use(capture="png")
    assert np.array_equal(phone.screenshot(), after)


def test_several_clients_of_a_phone_that_sends_changes_see_the_same(
    phone: AdbPhone, virtual_serial: str, opened: Callable[..., AdbPhone]
) -> None:
    others = [opened(virtual_serial) for _ in range(2)]
    others[0].use(capture="png")
    for number in range(6):
        phone.perform(Tap(0.5, 0.25 + 0.1 * (number % 3)))
        views = [device.screenshot() for device in (phone, *others)]
        assert all(np.array_equal(view, views[0]) for view in views[1:])
        phone.persistent_shell.close()  # a new shell has sent nothing yet


def test_the_stream_shows_what_the_screen_shows_when_it_is_asked(phone: AdbPhone) -> None:
    phone.use(capture="stream")
    assert isinstance(phone.screen.capture, h264_stream.StreamCapture)
    phone.screen.capture.lag_s = 1.0  # of a virtual phone on a busy machine
    before = phone.screenshot()
    for _ in range(3):
        phone.perform(Tap(0.5, 0.25))
        after = phone.screenshot()
        assert not images_match(before, after), "the touch came before the call"
        before = after
    phone.use(capture="raw")
    assert images_match(before, phone.screenshot())


@pytest.mark.parametrize("capture", ALL)
@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("truncated", r"ended after \d+ of 36864\d\d bytes|is truncated or damaged"),
        ("header", "not a frame|framebuffer version|ended after"),
        ("empty", "returned 0 bytes, not a frame|framebuffer: closed|no frame"),
        ("black", "is all black because the phone is asleep, locked"),
        ("secure", "black except for its edges"),
    ],
)
def test_a_failed_capture_is_an_error_and_never_a_picture(
    phone: AdbPhone, capture: str, fault: str, complaint: str
) -> None:
    phone.shell("setprop", "debug.agentrl.fault.capture", fault)
    phone.use(capture=capture)
    with pytest.raises(DeviceError, match=complaint):
        phone.screenshot()
    phone.shell("setprop", "debug.agentrl.fault.capture", "")
    assert phone.screenshot().shape == (1280, 720, 3)


@pytest.mark.parametrize("capture", ALL)
def test_a_rotated_phone_is_captured_rotated(
    phone: AdbPhone, capture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(h264_stream, "_CHECK_EVERY_S", 0.0)
    phone.use(capture=capture)
    assert phone.screenshot().shape == (1280, 720, 3)
    phone.shell("setprop", "debug.agentrl.fault.rotation", "1")
    assert phone.screenshot().shape == (720, 1280, 3)
    phone.perform(Tap(0.9, 0.5))
    assert phone.app_state(PACKAGE)["last"][0] > 0.8, "positions are of what is shown"


class OtherSize:
    """A capture that gives pictures of some size."""

    command = None

    def __init__(self, width: int, height: int) -> None:
        self._picture = np.full((height, width, 3), 9, np.uint8)

    def frame(self, deadline: object) -> np.ndarray:  # type: ignore[type-arg]
        return self._picture

    def close(self) -> None:
        """Nothing is kept."""


def test_a_capture_of_another_size_is_an_error(phone: AdbPhone) -> None:
    phone.screen.capture = OtherSize(360, 640)
    with pytest.raises(CaptureError, match="the capture is 360x640, but the screen is 720x1280"):
        phone.screenshot()
    phone.screen.capture = OtherSize(1280, 720)
    assert phone.screenshot().shape == (720, 1280, 3)
    assert phone.size() == (1280, 720), "it was turned"


@pytest.mark.parametrize("capture", ALL)
def test_a_phone_is_opened_with_the_capture_that_was_asked_for(
    virtual_serial: str, adb_server: object, capture: str
) -> None:
    device: Device = open_device(virtual_serial, capture=capture, input="input")
    assert device.screenshot().shape == (1280, 720, 3)
    assert isinstance(device, AdbPhone)
    assert type(device.screen.capture).__name__.lower().startswith(capture)
    assert device.internal_shell is device.one_shot_shell
    device.close()
