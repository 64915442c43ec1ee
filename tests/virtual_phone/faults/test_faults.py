import asyncio
import json
import math
import random
import re

import numpy as np
import pytest

from tests.virtual_phone.packet_client import PacketClient, serving
from tests.virtual_phone.shell_runner import probe_phone, run, run_later
from virtual_phone import snapshot
from virtual_phone.apps.app import state_path
from virtual_phone.apps.probe_app import ProbeApp
from virtual_phone.apps.system_packages import LAUNCHER
from virtual_phone.faults.faults import CHECKS, PREFIX, Distribution
from virtual_phone.virtual_phone import VirtualPhone

PACKAGE = ProbeApp.package
TOP = (30, 20)


@pytest.fixture
def phone() -> VirtualPhone:
    phone = VirtualPhone([ProbeApp()], size=(72, 128), tempo="quick")
    phone.tasks.launch(PACKAGE, {})
    return phone


def raw(phone: VirtualPhone) -> np.ndarray:
    head = np.frombuffer(run_bytes("screencap", phone)[:16], "<u4")
    pixels = np.frombuffer(run_bytes("screencap", phone), np.uint8, offset=16)
    return pixels.reshape(head[1], head[0], 4)


def run_bytes(script: str, phone: VirtualPhone) -> bytes:
    return run(script, phone).out_bytes


def setprop(phone: VirtualPhone, name: str, value: str) -> None:
    assert run(f"setprop {PREFIX}{name} '{value}'", phone).code == 0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("captur", "black", "unknown fault 'captur' (did you mean 'capture'?)"),
        ("capture", "green", "must be one of truncated, black, header, empty, secure, stale"),
        ("drop", "2", "not a probability"),
        ("drop", "nan", "not a probability"),
        ("latency_ms", "5-3", "NUMBER, LOW-HIGH or lognormal:MEDIAN:SIGMA"),
        ("latency_ms", "lognormal:5", "NUMBER, LOW-HIGH or lognormal:MEDIAN:SIGMA"),
        ("rotation", "4", "must be one of 0, 1, 2, 3"),
    ],
)
def test_an_invalid_fault_is_rejected(
    phone: VirtualPhone, name: str, value: str, message: str
) -> None:
    done = run(f"setprop {PREFIX}{name} {value}", phone)
    assert done.code == 1
    assert message in done.err
    assert not list(phone.faults)


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_every_fault_can_be_set_read_and_cleared(phone: VirtualPhone, name: str) -> None:
    values = {"capture": "black", "front": "com.x", "dialog": "anr", "input": "lost"}
    if name in ("offline_s", "reboot"):
        return  # they happen once
    setprop(phone, name, values.get(name, "1"))
    assert run(f"getprop {PREFIX}{name}", phone).out.strip() == values.get(name, "1")
    setprop(phone, name, "")
    assert run(f"getprop {PREFIX}{name}", phone).out.strip() == ""


def test_capture_faults_truncate_blacken_corrupt_or_drop_captures(phone: VirtualPhone) -> None:
    whole = run_bytes("screencap", phone)
    for fault, expected in (
        ("truncated", whole[: len(whole) // 2]),
        ("black", whole[:16] + bytes(len(whole) - 16)),
        ("header", b"\xff" * 16),
        ("empty", b""),
    ):
        setprop(phone, "capture", fault)
        assert run_bytes("screencap", phone) == expected, fault
    setprop(phone, "capture", "")
    assert run_bytes("screencap", phone) == whole


def test_captures_of_a_secure_window_show_only_the_status_bar(phone: VirtualPhone) -> None:
    bar = phone.shown.frame.split
    before = raw(phone)
    setprop(phone, "capture", "secure")
    after = raw(phone)
    assert np.array_equal(after[:bar], before[:bar])
    assert after[:bar, :, :3].any()
    assert not after[bar:, :, :3].any()


def test_a_stale_capture_does_not_change_until_the_fault_is_cleared(phone: VirtualPhone) -> None:
    before = run_bytes("screencap", phone)
    setprop(phone, "capture", "stale")
    phone.input.touch(*TOP)
    assert run_bytes("screencap", phone) == before
    setprop(phone, "capture", "")
    assert run_bytes("screencap", phone) != before


def test_back_leaves_a_package_in_front_and_ends_the_fault(phone: VirtualPhone) -> None:
    setprop(phone, "front", "com.android.settings")
    assert "com.android.settings/" in run("dumpsys window windows", phone).out
    run("input keyevent BACK", phone)
    assert f" u0 {PACKAGE}/" in run("dumpsys window windows", phone).out
    assert phone.faults.get("front") == ""
    setprop(phone, "front", "com.some.ad/.Popup")
    assert "com.some.ad/com.some.ad.Popup}" in run("dumpsys window windows", phone).out
    setprop(phone, "front", "")
    assert phone.shown.front == PACKAGE


def test_am_start_brings_the_app_back_to_the_front(phone: VirtualPhone) -> None:
    setprop(phone, "front", "com.android.settings")
    run(f"am start -S -W -n {PACKAGE}/.Main", phone)
    assert phone.shown.front == PACKAGE
    assert phone.faults.get("front") == ""


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        ("anr", f"u0 Application Not Responding: {PACKAGE}}}"),
        ("crash", f"u0 Application Error: {PACKAGE}}}"),
        ("call", "u0 com.android.dialer/com.android.incallui.InCallActivity}"),
        ("permission", "permission.ui.GrantPermissionsActivity}"),
    ],
)
def test_a_dialog_has_the_focus_and_receives_touches(
    phone: VirtualPhone, kind: str, title: str
) -> None:
    before = run_bytes("screencap", phone)
    setprop(phone, "dialog", kind)
    assert title in run("dumpsys window windows", phone).out
    assert run_bytes("screencap", phone) != before
    touches = phone.tasks.apps[PACKAGE].touches
    phone.input.touch(*TOP)
    phone.input.key("KEYCODE_ENTER")
    assert phone.tasks.apps[PACKAGE].touches == touches
    xml = run("uiautomator dump /dev/tty", phone).out
    assert "android.widget.Button" in xml
    phone.input.touch(*_button(xml, 1))
    assert phone.dialog is None
    assert phone.faults.get("dialog") == ""


def _button(xml: str, number: int) -> tuple[float, float]:
    """Return the center of a button."""
    nodes = re.findall(r'class="android.widget.Button".*?bounds="([^"]*)"', xml)
    left, top, right, bottom = map(int, re.findall(r"\d+", nodes[number]))
    return (left + right) / 2, (top + bottom) / 2


def test_closing_an_app_that_does_not_respond_stops_it(phone: VirtualPhone) -> None:
    setprop(phone, "dialog", "anr")
    phone.input.key("KEYCODE_BACK")
    assert phone.dialog is not None, "BACK does not help"
    phone.input.touch(*_button(run("uiautomator dump /dev/tty", phone).out, 0))
    assert phone.shown.front is None
    assert not phone.tasks.running


def test_the_published_state_of_a_crashed_app_remains(phone: VirtualPhone) -> None:
    state = f"cat {state_path(PACKAGE)}"
    phone.input.touch(*TOP)
    before = run(state, phone).out
    assert json.loads(before)["touches"] == 1
    setprop(phone, "dialog", "crash")
    assert (run(state, phone).out, run(f"pidof {PACKAGE}", phone).code) == (before, 1)
    other = probe_phone()
    snapshot.restore(other, snapshot.take(phone))
    assert run(state, other).out == before
    run(f"am force-stop {PACKAGE}", phone)
    assert run(state, phone).code == 1


@pytest.mark.parametrize("fix", [f"am force-stop {PACKAGE}", f"am start -S -n {PACKAGE}/.Main"])
@pytest.mark.parametrize("kind", ["anr", "crash"])
def test_restarting_an_app_dismisses_the_dialog_about_it(
    phone: VirtualPhone, kind: str, fix: str
) -> None:
    setprop(phone, "dialog", kind)
    run(fix, phone)
    assert phone.dialog is None
    assert "Application" not in run("dumpsys window windows", phone).out


def test_back_dismisses_a_call(phone: VirtualPhone) -> None:
    setprop(phone, "dialog", "call")
    phone.input.key("KEYCODE_BACK")
    assert phone.dialog is None
    assert phone.shown.front == PACKAGE


def test_the_input_fault_loses_touches(phone: VirtualPhone) -> None:
    setprop(phone, "input", "lost")
    assert run("input tap 30 20; input keyevent BACK", phone).code == 0
    assert phone.tasks.apps[PACKAGE].touches == 0


def test_the_slow_start_fault_delays_am_start(phone: VirtualPhone) -> None:
    setprop(phone, "slow_start_s", "0.2")

    async def start() -> float:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        await run_later(f"am start -n {PACKAGE}/.Main", phone)
        return loop.time() - start_s

    assert asyncio.run(start()) >= 0.19


def test_the_storage_fault_limits_free_space(phone: VirtualPhone) -> None:
    setprop(phone, "storage_mb", "0.001")
    assert "No space left" in run("echo " + "x" * 2000 + " > /sdcard/x", phone).err
    assert run("df /data | tail -1", phone).out.split()[3] == "0"
    setprop(phone, "storage_mb", "")
    assert run("echo " + "x" * 2000 + " > /sdcard/x", phone).code == 0
    assert int(run("df /data | tail -1", phone).out.split()[3]) > 1_000_000


def test_a_reboot_stops_all_apps_and_clears_all_faults(phone: VirtualPhone) -> None:
    setprop(phone, "hang", "1")
    setprop(phone, "rotation", "1")
    run("setprop debug.other 1; setprop persist.mine 2; settings put system a 3", phone)
    phone.restart()
    assert not list(phone.faults)
    assert phone.shown.front is None
    assert phone.geometry.rotation == 0
    output = run("getprop debug.other; getprop persist.mine; settings get system a", phone).out
    assert output == "\n2\n3\n"


async def test_the_latency_fault_delays_services() -> None:
    async with serving() as phone:
        phone.phone.faults.set("latency_ms", "80-90")
        wire = await PacketClient.to(phone.port)
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        assert await wire.ask("shell:echo late") == b"late\n"
        assert loop.time() - start_s >= 0.08


async def test_a_hung_command_never_answers_but_the_fault_can_be_cleared() -> None:
    async with serving() as phone:
        phone.phone.faults.set("hang", "1")
        wire = await PacketClient.to(phone.port)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await wire.ask("shell:echo never")
        again = await PacketClient.to(phone.port)
        assert await again.ask(f"shell:setprop {PREFIX}hang ''") == b""
        assert await again.ask("shell:echo on") == b"on\n"


async def test_the_drop_fault_breaks_the_connection_when_a_service_is_opened() -> None:
    async with serving() as phone:
        phone.phone.faults.set("drop", "1")
        wire = await PacketClient.to(phone.port)
        with pytest.raises((EOFError, ConnectionError)):
            await wire.ask("shell:echo no")
        phone.phone.faults.set("drop", "")
        assert await (await PacketClient.to(phone.port)).ask("shell:echo on") == b"on\n"


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("5", 5, 5), ("inf", math.inf, math.inf), ("0.5-2", 0.5, 2), ("lognormal:40:0.5", 5, 400)],
)
def test_distributions_have_the_stated_range_and_median(text: str, low: float, high: float) -> None:
    source = random.Random(1)
    numbers = sorted(Distribution.parse(text).draw(source) for _ in range(1000))
    assert low <= numbers[0] <= numbers[-1] <= high
    middle = (low + high) / 2 if not text.startswith("log") else 40
    assert numbers[500] == pytest.approx(middle, rel=0.1)


def test_a_dialog_can_cover_the_home_screen() -> None:
    phone = VirtualPhone(size=(72, 128), tempo="quick")
    setprop(phone, "dialog", "anr")
    assert f"Not Responding: {LAUNCHER}" in run("dumpsys window windows", phone).out


def test_home_leads_from_an_update_to_the_home_screen_at_once(phone: VirtualPhone) -> None:
    setprop(phone, "dialog", "update")
    shown: list[str | None] = []
    phone.display.on_show = lambda: shown.append(phone.shown.focus)
    run("input keyevent HOME", phone)
    assert phone.faults.get("dialog") == ""
    assert str(shown[-1]).startswith(LAUNCHER)
    assert not any(window and window.startswith(PACKAGE) for window in shown)
