import asyncio
from collections.abc import Sequence

import cv2
import numpy as np
import pytest

from tests.virtual_phone.shell_runner import probe_phone, run
from virtual_phone.apps.app import View
from virtual_phone.apps.probe_app import ProbeApp
from virtual_phone.virtual_phone import VirtualPhone

PACKAGE = ProbeApp.package
TOP = (30, 20)


@pytest.fixture
def phone() -> VirtualPhone:
    phone = probe_phone()
    phone.tasks.launch(PACKAGE, {})
    return phone


def test_a_sleeping_phone_is_black_ignores_touches_and_wakes_locked(phone: VirtualPhone) -> None:
    assert run("input keyevent 26", phone).code == 0
    assert not phone.shown.frame.rgba[..., :3].any()
    output = run("dumpsys power; dumpsys window policy; dumpsys display", phone).out
    for text in (
        "mWakefulness=Asleep", "mHoldingDisplaySuspendBlocker=false", "isStatusBarKeyguard=true",
        "showing=true", "mScreenState=OFF",
    ):  # fmt: skip
        assert text in output
    run("input tap 30 20; input swipe 30 100 30 20; input keyevent BACK", phone)
    assert phone.tasks.apps[PACKAGE].touches == 0
    run("input keyevent 224", phone)
    assert phone.shown.focus == "NotificationShade"
    assert phone.shown.frame.rgba[..., :3].any()
    run("input tap 30 20", phone)
    assert phone.tasks.apps[PACKAGE].touches == 0


@pytest.mark.parametrize(
    "unlock", ["input keyevent 82", "wm dismiss-keyguard", "input swipe 30 110 30 20"]
)
def test_the_lock_screen_can_be_dismissed(phone: VirtualPhone, unlock: str) -> None:
    run(f"input keyevent 223; input keyevent 224; {unlock}", phone)
    assert "isStatusBarKeyguard=false" in run("dumpsys window policy", phone).out
    assert str(phone.shown.focus).startswith(PACKAGE)


def test_a_phone_without_a_lock_screen_wakes_unlocked(phone: VirtualPhone) -> None:
    run("locksettings set-disabled true; input keyevent POWER; input keyevent POWER", phone)
    assert not phone.is_hidden


def test_a_phone_that_stays_on_wakes(phone: VirtualPhone) -> None:
    run("input keyevent 223; svc power stayon true", phone)
    assert phone.power.awake
    assert run("settings get global stay_on_while_plugged_in", phone).out == "15\n"


@pytest.mark.parametrize("command", ["wm size 12xq", "wm size 12", "wm size x9", "wm density abc"])
def test_a_size_that_is_no_number_is_refused_in_androids_words(command, phone):
    said = run(command, phone)
    assert said.code == 255
    assert said.err.startswith("Error: bad ")
    assert "literal" not in said.err


@pytest.mark.parametrize("rotation", [1, 3])
def test_the_image_rotates_with_the_phone_unless_rotation_is_locked(
    phone: VirtualPhone, rotation: int
) -> None:
    run(f"setprop debug.agentrl.fault.rotation {rotation}", phone)
    assert phone.shown.frame.size == (128, 72)
    output = run("dumpsys display", phone).out
    assert f"orientation={rotation}" in output
    assert "deviceWidth=128, deviceHeight=72" in output
    assert run("wm size", phone).out == "Physical size: 72x128\n", "as on every phone"
    phone.input.touch(120, 20)
    assert phone.tasks.apps[PACKAGE].app.state()["last"][0] == pytest.approx(120.5 / 128)
    run("settings put system accelerometer_rotation 0", phone)
    assert phone.shown.frame.size == (72, 128)
    run("settings put system user_rotation 1", phone)
    assert phone.shown.frame.size == (128, 72)
    run("wm user-rotation lock 0", phone)
    assert phone.shown.frame.size == (72, 128)
    run("wm user-rotation free", phone)
    assert phone.shown.frame.size == (128, 72)


def test_the_screen_size_can_be_overridden(phone: VirtualPhone) -> None:
    run("wm size 100x200; wm density 240", phone)
    assert phone.shown.frame.size == (100, 200)
    output = run("wm size; wm density", phone).out
    assert output == (
        "Physical size: 72x128\nOverride size: 100x200\nPhysical density: 32\n"
        "Override density: 240\n"
    )
    run("wm size reset; wm density reset", phone)
    assert phone.shown.frame.size == (72, 128)
    for size in ("0x0", "1x", "x", "99999x99999", "-5x-5"):
        assert run(f"wm size {size}", phone).code == 255
    assert phone.shown.frame.size == (72, 128)


class AppWithViews(ProbeApp):
    package = "org.agentrl.stating"

    def views(self) -> Sequence[View]:
        button = View(
            bounds=(0.5, 0, 1, 0.5), text='Say "<hi>" & \n\x01', id="say", is_clickable=True
        )
        return [View(bounds=(0, 0, 1, 0.5), kind="android.widget.LinearLayout", children=[button])]


def test_the_view_hierarchy_has_the_apps_views_with_bounds_in_pixels() -> None:
    from xml.etree import ElementTree

    phone = VirtualPhone([AppWithViews()], size=(72, 128), tempo="quick")
    phone.tasks.launch(AppWithViews.package, {})
    output = run("uiautomator dump && cat /sdcard/window_dump.xml", phone).out
    first, _, xml = output.partition("\n")
    assert first == "UI hierchary dumped to: /sdcard/window_dump.xml"
    nodes = list(ElementTree.fromstring(xml.encode()).iter("node"))
    assert [node.get("class") for node in nodes] == [
        "android.widget.FrameLayout", "android.widget.LinearLayout", "android.view.View",
    ]  # fmt: skip
    assert nodes[2].get("text") == 'Say "<hi>" & \n.'
    assert nodes[2].get("resource-id") == "org.agentrl.stating:id/say"
    assert nodes[2].get("clickable") == "true"
    assert nodes[2].get("bounds") == "[36,5][72,66]"


def test_an_app_without_views_is_a_single_node(phone: VirtualPhone) -> None:
    xml = run("uiautomator dump /dev/tty", phone).out
    assert xml.count("<node ") == 1
    assert f'package="{PACKAGE}"' in xml


def test_the_home_screen_lists_its_tiles_as_views(phone: VirtualPhone) -> None:
    run("input keyevent HOME", phone)
    assert 'text="probe"' in run("uiautomator dump /dev/tty", phone).out


def test_adbkeyboard_types_unicode_text_while_it_is_selected(phone: VirtualPhone) -> None:
    import base64

    text = "héllo 你好 👋 'quoted' $(reboot)"
    encoded = base64.b64encode(text.encode()).decode()
    send = f"am broadcast -a ADB_INPUT_B64 --es msg {encoded}"
    done = run(send, phone)
    assert done.out.endswith("Broadcast completed: result=0\n")
    assert phone.tasks.apps[PACKAGE].app.state()["text"] == "", "nothing listens"
    assert "Unknown id" in run("ime set com.android.adbkeyboard/.AdbIME", phone).err
    chosen = run(
        "ime enable com.android.adbkeyboard/.AdbIME; ime set com.android.adbkeyboard/.AdbIME; "
        "settings get secure default_input_method",
        phone,
    ).out
    assert chosen.endswith("selected for user #0\ncom.android.adbkeyboard/.AdbIME\n")
    run(send, phone)
    run("am broadcast -a ADB_INPUT_TEXT --es msg ' more'", phone)
    run("am broadcast -a ADB_INPUT_CHARS --eia chars '128568,33'", phone)
    run("am broadcast -a ADB_INPUT_CODE --ei code 66", phone)
    for junk in ("!!!", "w4", "a b", ""):
        run(f"am broadcast -a ADB_INPUT_B64 --es msg '{junk}'", phone)
    assert phone.tasks.apps[PACKAGE].app.state()["text"] == text + " more\U0001f638!"
    assert phone.tasks.apps[PACKAGE].app.state()["keys"] == ["KEYCODE_ENTER"]
    run("am broadcast -a ADB_CLEAR_TEXT", phone)
    assert phone.tasks.apps[PACKAGE].app.state()["text"] == ""
    run("ime reset", phone)
    run(send, phone)
    assert phone.tasks.apps[PACKAGE].app.state()["text"] == ""


def test_input_text_types_only_ascii(phone: VirtualPhone) -> None:
    assert run("input text 'a%sb'", phone).code == 0
    assert run("input text 'é'", phone).code == 255
    assert phone.tasks.apps[PACKAGE].app.state()["text"] == "a b"


def test_motion_events_make_taps_and_swipes(phone: VirtualPhone) -> None:
    run("input motionevent DOWN 30 20; input motionevent UP 31 21", phone)
    run("input motionevent DOWN 30 20; input motionevent MOVE 30 60", phone)
    run("input motionevent UP 30 100; input motionevent DOWN 1 1; input motionevent CANCEL", phone)
    names = [event[0] for event in phone.tasks.apps[PACKAGE].inputs]
    assert names == ["touch", "swipe"]


@pytest.mark.parametrize(
    "words", ["tap 1", "tap a b", "tap nan 1", "swipe 1 2 3", "keyevent", "keyevent '!'", "fly 1 2"]
)
def test_invalid_input_is_rejected(phone: VirtualPhone, words: str) -> None:
    assert run(f"input {words}", phone).code != 0
    assert not phone.tasks.apps[PACKAGE].inputs


def test_back_returns_to_the_app_below(phone: VirtualPhone) -> None:
    run("am start -a android.settings.SETTINGS", phone)
    run("am start -a android.intent.action.VIEW -d http://127.0.0.1:1/x", phone)
    assert phone.shown.front == "com.android.chrome"
    run("input keyevent 4", phone)
    assert phone.shown.front == "com.android.settings"
    run("input keyevent 4", phone)
    assert phone.shown.front == PACKAGE
    run("am start -a android.intent.action.MAIN -c android.intent.category.HOME", phone)
    assert phone.shown.front is None


def test_an_unresolvable_intent_is_reported(phone: VirtualPhone) -> None:
    done = run("am start -a android.intent.action.SET_ALARM", phone)
    assert (done.code, "unable to resolve Intent { act=" in done.err) == (1, True)
    assert "Argument expected after '-d'" in run("am start -d", phone).err


def test_battery_overrides_last_until_they_are_reset(phone: VirtualPhone) -> None:
    run("dumpsys battery set level 5; dumpsys battery set temp 480; dumpsys battery unplug", phone)
    output = run("dumpsys battery", phone).out
    assert "level: 5" in output
    assert "temperature: 480" in output
    assert "AC powered: false" in output
    run("cmd battery reset", phone)
    assert "level: 100" in run("dumpsys battery", phone).out


def test_png_and_raw_captures_agree_on_every_screen(phone: VirtualPhone) -> None:
    for script in ("true", "input keyevent 26", "input keyevent 26", "input keyevent 82 3"):
        run(script, phone)
        png = np.frombuffer(run("screencap -p", phone).out_bytes, np.uint8)
        shown = cv2.imdecode(png, cv2.IMREAD_COLOR_RGB)
        assert np.array_equal(phone.shown.frame.rgba[..., :3], shown)


async def test_the_next_visible_change_can_be_awaited(phone: VirtualPhone) -> None:
    shown = phone.shown
    waiting = asyncio.create_task(phone.display.wait_for_change(shown))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    phone.input.touch(*TOP)
    await asyncio.wait_for(waiting, 10)
    assert phone.shown is not shown


def test_a_page_whose_text_changes_is_redrawn_within_the_same_minute(
    phone: VirtualPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("virtual_phone.apps.app_manager._time_of_day", lambda *_: 0)
    phone.tasks.bring_to_front("com.android.chrome", text="loading")
    before = phone.shown.frame
    phone.tasks.bring_to_front("com.android.chrome", text="a page")
    assert not np.array_equal(phone.shown.frame.rgba, before.rgba)
