import functools
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from agentrl.devices import Tap
from agentrl.devices.adb_phone import INPUTS, AdbPhone
from agentrl.devices.capture import screencap
from agentrl.devices.capture_and_input_choice import mark_fastest
from agentrl.devices.capture_and_input_timing import MethodTiming, measure_methods, screen_toggler
from agentrl.extension_points import CAPTURE

PACKAGE = "org.agentrl.probe"


@pytest.fixture
def phone(virtual_serial: str, opened: Callable[..., AdbPhone]) -> Iterator[AdbPhone]:
    device = opened(virtual_serial)
    device.launch(PACKAGE, ".Main", {})
    yield device
    device.shell("setprop", "debug.agentrl.fault.capture", "")


def by_name(measured: list[MethodTiming]) -> dict[str, MethodTiming]:
    return {row.name: row for row in measured}


@pytest.mark.adb
def test_every_method_is_measured_or_says_why_not(phone: AdbPhone) -> None:
    touches: list[int] = []

    def change() -> None:
        touches.append(1)
        phone.perform(Tap(0.5, 0.25))

    found = by_name(mark_fastest(measure_methods(phone, rounds=2, change=change)))
    assert set(found) == {*CAPTURE.names(), *INPUTS}
    for row in found.values():
        assert row.failure == ""
        assert (row.median_ms or 0) > 0
    assert len(touches) == len(CAPTURE.names()) + 2, "every capture has shown a change"
    assert sum(row.picked for row in found.values()) == 2
    lag_s = found["stream"].lag_s
    assert lag_s is not None
    assert (found["stream"].median_ms or 0) >= 1000 * lag_s, "it waits that long"


@pytest.mark.adb
def test_settings_and_home_screen_differ_enough_to_measure(phone: AdbPhone) -> None:
    found = by_name(measure_methods(phone, rounds=1, change=screen_toggler(phone)))
    assert {row.failure for row in found.values()} == {""}
    assert phone.focus() != PACKAGE


@pytest.mark.adb
def test_a_phone_already_showing_its_settings_is_not_stale(phone: AdbPhone) -> None:
    phone.shell("am", "start", "-a", "android.settings.SETTINGS")
    found = by_name(measure_methods(phone, rounds=1, change=screen_toggler(phone)))
    assert {row.failure for row in found.values()} == {""}


@pytest.mark.adb
def test_a_capture_that_fails_on_a_phone_is_not_picked(phone: AdbPhone) -> None:
    phone.shell("setprop", "debug.agentrl.fault.capture", "truncated")
    found = by_name(mark_fastest(measure_methods(phone, rounds=1)))
    assert "ended after" in found["raw"].failure
    assert "truncated" in found["png"].failure
    assert not any(found[name].picked for name in ("raw", "png"))


@pytest.mark.adb
def test_a_stale_capture_is_not_picked(phone: AdbPhone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrl.devices.capture.capture_trial._FRESH_S", 0.3)
    monkeypatch.setattr("agentrl.devices.capture.capture_trial._FRESH_S", 0.3)
    phone.shell("setprop", "debug.agentrl.fault.capture", "stale")
    change = functools.partial(phone.perform, Tap(0.5, 0.25))
    found = by_name(mark_fastest(measure_methods(phone, rounds=1, change=change)))
    for name in CAPTURE.names():
        assert "stale; a screen change was still not visible after 0.3 s" in found[name].failure
        assert not found[name].picked


@pytest.mark.adb
def test_a_capture_that_shows_something_else_is_not_picked(
    phone: AdbPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = screencap.RawCapture.read
    monkeypatch.setattr(
        screencap.RawCapture,
        "read",
        lambda self, link: np.ascontiguousarray(read(self, link)[::-1]),
    )
    found = by_name(measure_methods(phone, rounds=1))
    assert "does not match other captures" in found["raw"].failure
