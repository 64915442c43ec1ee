from collections.abc import Callable, Iterator

import pytest

from agentrl.devices import capture_and_input_choice, open_device
from agentrl.devices.adb_phone import INPUTS, AdbPhone
from agentrl.devices.capture import screencap
from agentrl.devices.capture_and_input_choice import choose_methods, mark_fastest
from agentrl.devices.capture_and_input_timing import MethodTiming
from agentrl.errors import CaptureError, ConfigError
from tests.devices.relay import relayed

PACKAGE = "org.agentrl.probe"


def rows(**medians: float | None) -> list[MethodTiming]:
    kinds = {name: "input" if name in INPUTS else "capture" for name in medians}
    return [
        MethodTiming(kind=kinds[name], name=name, median_ms=median)  # type: ignore[arg-type]
        for name, median in medians.items()
    ]


@pytest.mark.parametrize(
    ("measured", "picked"),
    [
        ({"raw": 100.0, "png": 900.0}, ["raw"]),
        ({"raw": 100.0, "framebuffer": 90.0}, ["raw"]),
        ({"raw": 100.0, "framebuffer": 60.0}, ["framebuffer"]),
        ({"raw": None, "png": 900.0, "stream": 300.0}, ["stream"]),
        ({"raw": None, "png": None}, []),
        ({"input": 50.0, "shell": 10.0, "raw": 5.0}, ["shell", "raw"]),
        ({"input": 10.0, "shell": 50.0}, ["input"]),
        ({"input": 10.0, "shell": 12.0}, ["shell"]),
        ({"input": 10.0, "shell": None}, ["input"]),
    ],
)
def test_the_fastest_working_method_is_picked_and_the_default_if_hardly_slower(
    measured: dict[str, float | None], picked: list[str]
) -> None:
    assert [row.name for row in mark_fastest(rows(**measured)) if row.picked] == picked


@pytest.fixture
def phone(virtual_serial: str, opened: Callable[..., AdbPhone]) -> Iterator[AdbPhone]:
    device = opened(virtual_serial)
    device.launch(PACKAGE, ".Main", {})
    yield device
    device.shell("setprop", "debug.agentrl.fault.capture", "")


def by_name(measured: list[MethodTiming]) -> dict[str, MethodTiming]:
    return {row.name: row for row in measured}


@pytest.mark.adb
def test_auto_picks_and_logs_what_was_measured_within_its_budget(
    phone: AdbPhone, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_and_input_choice, "BUDGET_S", 60.0)
    with caplog.at_level("INFO", "agentrl.devices.capture_and_input_choice"):
        found = by_name(choose_methods(phone))
    assert set(found) == {"raw", "framebuffer", "png", *INPUTS}
    picked = [row.name for row in found.values() if row.picked]
    assert len(picked) == 2
    assert f"{phone.serial}: capture " in caplog.text
    assert all(name in caplog.text for name in picked)
    assert phone.screenshot().shape == (1280, 720, 3)


@pytest.mark.adb
def test_without_time_for_repeats_every_method_is_measured_once(
    phone: AdbPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_and_input_choice, "BUDGET_S", 0.0)
    found = by_name(choose_methods(phone))
    assert set(found) == {"raw", "framebuffer", "png", *INPUTS}
    assert {row.failure for row in found.values()} == {""}


@pytest.mark.adb
def test_over_a_slow_link_small_captures_win_although_raw_ones_are_measured_first(
    phone: AdbPhone, opened: Callable[..., AdbPhone], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another name of the variable: as on a real phone, raw captures are not sent as changes.
    monkeypatch.setattr(screencap, "KNOWN_SCREEN", "UNKNOWN")
    monkeypatch.setattr(capture_and_input_choice, "BUDGET_S", 0.2)
    with relayed(int(phone.serial.rpartition(":")[2]), bytes_per_s=6e6) as port:
        found = by_name(choose_methods(opened(f"127.0.0.1:{port}")))
    assert {row.failure for row in found.values()} == {""}
    assert [row.name for row in found.values() if row.picked and row.kind == "capture"] == ["png"]
    assert (found["raw"].median_ms or 0) > 400


@pytest.mark.adb
def test_a_sleeping_phone_can_still_be_opened(phone: AdbPhone, virtual_serial: str) -> None:
    phone.shell("setprop", "debug.agentrl.fault.capture", "black")
    device = open_device(virtual_serial)
    with pytest.raises(CaptureError, match="is all black"):
        device.screenshot()
    device.close()


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [({"capture": "rawr"}, "did you mean 'raw'"), ({"input": "shel"}, "did you mean 'shell'")],
)
def test_an_unknown_method_is_a_config_error(setting: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        open_device("virtual", **setting)  # type: ignore[arg-type]
