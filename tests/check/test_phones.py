"""The doctor names what is wrong with a phone, on a phone that it is wrong with."""

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from agentrl.actions.dialect import Screen
from agentrl.actions.dialects.ui_tars_1_5 import UITars15
from agentrl.actions.reply_values import CoordinateScale
from agentrl.actions.screen_actions import ScreenAction
from agentrl.check.phones import Finding, examine, phone_probes, phone_readings, tap_accuracy
from agentrl.devices import Deadlines
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.device import CommandResult
from agentrl.policies.models.model_adapter import resize_image
from agentrl.types import Image
from virtual_phone import spawn

QUICK = Deadlines(connect_s=5, command_s=2, frame_s=2, launch_s=5)
FAULT = "debug.agentrl.fault."


@pytest.fixture
def phone(adb_server: AdbServer, unused_serial: str) -> Iterator[AdbPhone]:
    with closing(AdbPhone(adb_server, unused_serial, QUICK)) as device:
        yield device


def first_ill(server: AdbServer, serial: str, what: str) -> Finding:
    """What is said of one thing, once it is not well; what comes after it is not looked at."""
    said = []
    with closing(examine(server, serial, QUICK)) as findings:  # type: ignore[type-var]
        for found in findings:
            said.append(found)
            if found.what == what and found.state != "ok":
                assert found.fix
                return found
    raise AssertionError(f"nothing wrong with {what}: {said}")


@pytest.mark.adb
def test_a_healthy_phone_has_no_findings(adb_server: AdbServer, phone: AdbPhone) -> None:
    found = {finding.what: finding for finding in examine(adb_server, phone.serial, QUICK)}
    assert {f.what for f in found.values() if f.state == "wrong"} == set()
    assert {
        "connected", "commands", "phone", "started", "awake", "unlocked", "battery", "storage",
        "rotation", "in front", "typing", "apps start", "touches", "resolution", "capture raw",
        "capture png", "text",
    } <= found.keys()  # fmt: skip
    assert "one that jobs use" in "".join(f.detail for f in found.values())
    assert phone.focus() != phone_probes.PROBE


@pytest.mark.adb
@pytest.mark.parametrize(
    ("setting", "what", "words"),
    [
        (("input", "keyevent", "POWER"), "awake", "screen is off"),
        (("input", "keyevent", "POWER"), "unlocked", "lock screen"),
        (("dumpsys", "battery", "set", "level", "7"), "battery", "7%"),
        (("setprop", FAULT + "storage_mb", "1"), "storage", "0.0 GB free"),
        (("setprop", FAULT + "rotation", "1"), "rotation", "turned to the left"),
        (("setprop", FAULT + "dialog", "anr"), "in front", "is not responding"),
        (("setprop", FAULT + "dialog", "crash"), "in front", "has crashed"),
        (("setprop", FAULT + "dialog", "call"), "in front", "a call"),
        (("setprop", FAULT + "dialog", "permission"), "in front", "a system dialog"),
        (("setprop", FAULT + "front", "com.example.shop"), "in front", "com.example.shop"),
        (("setprop", FAULT + "latency_ms", "200"), "commands", "slow"),
        (("setprop", FAULT + "drop", "0.5"), "commands", "failed"),
        (("setprop", FAULT + "hang", "1"), "commands", "no answer within"),
    ],
)
def test_each_problem_is_reported_with_a_fix(
    adb_server: AdbServer, phone: AdbPhone, setting: tuple[str, ...], what: str, words: str
) -> None:
    if "battery" in setting:
        phone.shell("dumpsys", "battery", "unplug")
    phone.shell(*setting)
    assert words in first_ill(adb_server, phone.serial, what).detail


@pytest.mark.adb
@pytest.mark.parametrize(
    ("fault", "value", "what", "words"),
    [
        ("capture", "black", "capture raw", "black"),
        ("capture", "truncated", "capture raw", "ended after"),
        ("capture", "header", "capture raw", "not a frame"),
        ("capture", "empty", "capture raw", "not a frame"),
        ("capture", "secure", "capture raw", "forbids captures"),
        ("capture", "stale", "capture raw", "stale"),
        ("input", "lost", "touches", "had no effect"),
        ("slow_start_s", "0.6", "apps start", "slow"),
        ("publish_late_s", "0.6", "touches", "late"),
    ],
)
def test_each_failed_test_is_reported_with_a_fix(
    adb_server: AdbServer,
    phone: AdbPhone,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    value: str,
    what: str,
    words: str,
) -> None:
    monkeypatch.setattr("agentrl.devices.capture.capture_trial._FRESH_S", 0.3)
    monkeypatch.setattr(phone_probes, "_SLOW_START_S", 0.5)
    if fault == "input":
        monkeypatch.setattr(phone_probes, "ARRIVES_S", 0.3)
    phone.shell("setprop", FAULT + fault, value)
    assert words in first_ill(adb_server, phone.serial, what).detail


@pytest.mark.adb
def test_a_missing_phone_is_reported(adb_server: AdbServer) -> None:
    with socket.socket() as silent:  # bound, so that nothing listens there
        silent.bind(("127.0.0.1", 0))
        unreachable = f"127.0.0.1:{silent.getsockname()[1]}"
        for serial, fix in (("NOSUCHPHONE", "cable"), (unreachable, "network")):
            (found,) = examine(adb_server, serial, QUICK)
            assert (found.what, found.state) == ("connected", "wrong")
            assert fix in found.fix


@pytest.mark.adb
def test_a_phone_that_waits_for_authorization_is_unauthorized(adb_server: AdbServer) -> None:
    with spawn(1, ["virtual_phone.apps.probe_app:ProbeApp"], auth=True, keys=[]) as phones:
        (found,) = examine(adb_server, phones.serials[0], Deadlines(connect_s=2))
        assert found.what == "connected"
        assert "allow debugging on its screen" in found.fix
        adb_server.disconnect(phones.serials[0])


@pytest.mark.adb
def test_one_phone_behind_two_serials_is_reported(adb_server: AdbServer, phone: AdbPhone) -> None:
    twin = phone.serial.replace("127.0.0.1", "localhost")
    adb_server.connect(twin)
    try:
        assert twin in first_ill(adb_server, phone.serial, "serials").detail
    finally:
        adb_server.disconnect(twin)


class Unrounded(UITars15):
    """Scales by one ratio for both sides, as if the model's image had not been rounded."""

    def scale(self, screen: Screen) -> CoordinateScale:
        width, height = screen.size
        return CoordinateScale(sides=(screen.seen[0], screen.seen[0] * height / width))


@pytest.mark.adb
@pytest.mark.parametrize(("cls", "state"), [(UITars15, "ok"), (Unrounded, "wrong")])
def test_the_pixels_that_a_dialect_hits_are_proved(
    phone: AdbPhone, cls: type[UITars15], state: str
) -> None:
    spelling, reading = UITars15(), cls()

    class Mixed(UITars15):
        """Spells as the model does, and parses as the class under test."""

        def parse(self, reply: str, screen: Screen) -> ScreenAction:
            return reading.parse(reply, screen)

    def see(image: Image) -> Image:
        size = (image.shape[1], image.shape[0])
        return resize_image(image, spelling.served_size(size))

    speaker = tap_accuracy.Speaker(dialect=Mixed(), see=see)
    targets = ((0.1, 0.1), (0.5, 0.5), (0.9, 0.95))
    (found,) = tap_accuracy.findings(phone, speaker, "ui-tars-1.5", targets)
    assert (found.state, found.what) == (state, "taps in ui-tars-1.5"), found.detail


def findings_of(*outputs: str) -> dict[str, Finding]:
    """What a phone whose commands print this, in the order of COMMANDS, is said to have."""
    rest = iter(outputs)
    results = [CommandResult(output=next(rest, ""), code=0) for _ in phone_readings.COMMANDS]
    return {finding.what: finding for finding in phone_readings.parse_readings(results)}


def test_empty_command_outputs_are_handled() -> None:
    assert {finding.state for finding in findings_of().values()} <= {"ok", "note", "wrong"}


@pytest.mark.parametrize(
    ("uptime", "state"), [("12.3 40.0", "note"), ("86400.1 1.0", "ok"), ("", "ok")]
)
def test_a_phone_that_has_just_started_is_suspicious(uptime: str, state: str) -> None:
    assert findings_of("", "", "14", "1", uptime)["started"].state == state


def test_a_phone_that_is_still_booting_is_reported() -> None:
    assert findings_of("", "", "14", "", "12.3")["started"].state == "wrong"


@pytest.mark.adb
def test_a_phone_without_touch_input_has_no_other_findings(
    adb_server: AdbServer, phone: AdbPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phone_probes, "ARRIVES_S", 0.3)
    phone.shell("setprop", FAULT + "input", "lost")
    ills = [one.what for one in examine(adb_server, phone.serial) if one.state != "ok"]
    assert ills == ["rotation", "touches"]


@pytest.mark.adb
def test_a_dialog_that_blocks_the_launch_is_reported(
    adb_server: AdbServer, phone: AdbPhone
) -> None:
    phone.shell("setprop", FAULT + "dialog", "call")
    findings = examine(adb_server, phone.serial, Deadlines(launch_s=2))
    detail = next(one.detail for one in findings if one.what == "apps start")
    assert "was started but com.android.dialer is in front after 2 s" in detail
