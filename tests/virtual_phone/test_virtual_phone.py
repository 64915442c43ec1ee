import asyncio
import json

import numpy as np
import pytest

from virtual_phone.apps.app import state_path
from virtual_phone.apps.probe_app import ProbeApp
from virtual_phone.virtual_phone import VirtualPhone

PACKAGE = ProbeApp.package
TOP, BOTTOM = (30, 20), (30, 110)


def make(number: int = 0, delay: tuple[float, float] = (0, 0)) -> VirtualPhone:
    return VirtualPhone([ProbeApp()], size=(72, 128), effect_delay_ms=delay, seed=7, number=number)


def state(phone: VirtualPhone) -> dict[str, object]:
    return json.loads(phone.files.read(state_path(PACKAGE)))


def play(phone: VirtualPhone) -> list[bytes]:
    frames = [bytes(phone.shown.frame.raw)]
    phone.tasks.launch(PACKAGE, {"seed": "3"})
    for px, py in (TOP, BOTTOM, TOP) * 20:
        phone.input.touch(px, py)
        frames.append(bytes(phone.shown.frame.raw))
    return frames


def test_the_same_seed_and_touches_give_the_same_frames_on_every_phone() -> None:
    assert play(make(number=0)) == play(make(number=5))


def test_a_second_launch_gives_the_frames_of_the_first() -> None:
    phone = make()
    first, second = play(phone), play(phone)
    assert first[1:] == second[1:]


def test_the_clock_is_visible_and_advances_with_touches() -> None:
    frames = play(make())
    bar = [frame[16 : 16 + 72 * 4 * 5] for frame in frames]
    assert len(set(bar)) > 2


def test_every_touch_is_counted_and_only_some_have_an_effect() -> None:
    phone = make()
    phone.tasks.launch(PACKAGE, {})
    phone.input.touch(30, 66)
    phone.input.touch(30, 1)
    assert state(phone)["touches"] == 2
    assert state(phone)["halves"] == [0, 1]
    phone.input.touch(*TOP)
    assert state(phone)["touches"] == 3
    assert state(phone)["halves"] == [1, 1]


def test_back_and_home_leave_the_app_and_stop_removes_its_state() -> None:
    phone = make()
    for code in ("KEYCODE_BACK", "KEYCODE_HOME"):
        phone.tasks.launch(PACKAGE, {})
        phone.input.key(code)
        assert phone.shown.front is None
    phone.tasks.stop(PACKAGE)
    assert phone.files.find(state_path(PACKAGE)) is None


def test_touching_a_home_screen_tile_starts_its_app() -> None:
    phone = make()
    phone.input.touch(9, 12)
    assert phone.shown.front == PACKAGE


def test_an_app_that_raises_disappears_and_the_phone_keeps_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    phone = make()
    phone.tasks.launch(PACKAGE, {})
    monkeypatch.setattr(phone.tasks.apps[PACKAGE].app, "touch", lambda x, y: 1 / 0)
    phone.input.touch(*TOP)
    assert phone.shown.front is None
    assert state(phone)["touches"] == 0, "it did not come to count the touch"
    assert any("FATAL" in line.text for line in phone.log.entries)
    phone.tasks.launch(PACKAGE, {})
    assert phone.shown.front == PACKAGE


async def test_image_and_state_change_together_and_only_after_the_delay() -> None:
    phone = make(delay=(60, 80))
    phone.tasks.launch(PACKAGE, {})
    await phone.display.wait_until_idle()
    loop = asyncio.get_running_loop()
    before, start = phone.shown, loop.time()
    phone.input.touch(*TOP)
    seen = []
    while phone.shown is before:
        seen.append((bytes(before.frame.raw), state(phone)["touches"]))
        assert loop.time() - start < 2
        await asyncio.sleep(0.002)
    assert loop.time() - start >= 0.055
    assert {touches for _, touches in seen} == {0}
    assert len({frame for frame, _ in seen}) == 1
    assert state(phone)["touches"] == 1
    assert bytes(phone.shown.frame.raw) != seen[0][0]


async def test_quick_touches_show_their_effects_in_order() -> None:
    phone = make(delay=(0, 40))
    phone.tasks.launch(PACKAGE, {})
    await phone.display.wait_until_idle()
    for _ in range(6):
        phone.input.touch(*TOP)
    seen = [0]
    async with asyncio.timeout(10):
        while seen[-1] != 6:
            await asyncio.sleep(0.001)
            seen.append(json.loads(phone.shown.states[PACKAGE])["touches"])
    assert seen == sorted(seen)


async def test_a_touch_goes_to_the_visible_window() -> None:
    phone = make(delay=(60, 80))
    phone.tasks.launch(PACKAGE, {})
    await phone.display.wait_until_idle()
    phone.tasks.bring_to_front("com.android.chrome")
    phone.input.touch(*TOP)
    assert phone.tasks.apps[PACKAGE].touches == 1, "the other one is not to be seen yet"
    await phone.display.wait_until_idle()
    phone.input.touch(*TOP)
    assert (phone.shown.front, state(phone)["touches"]) == ("com.android.chrome", 1)
    phone.tasks.stop("com.android.chrome")
    phone.input.touch(*TOP)
    await phone.display.wait_until_idle()
    assert (phone.shown.front, state(phone)["touches"]) == (PACKAGE, 1), "it ran no more"


def test_raw_and_png_frames_contain_the_same_image() -> None:
    import cv2

    phone = make()
    raw = np.frombuffer(phone.shown.frame.raw, np.uint8, offset=16).reshape(128, 72, 4)
    png = cv2.imdecode(np.frombuffer(phone.shown.frame.png, np.uint8), cv2.IMREAD_UNCHANGED)
    assert np.array_equal(raw, cv2.cvtColor(png, cv2.COLOR_BGRA2RGBA))


async def test_a_late_published_state_never_replaces_a_newer_one() -> None:
    phone = make()
    phone.tasks.launch(PACKAGE, {})
    phone.faults.set("publish_late_s", "0.2")
    phone.input.touch(*TOP)
    assert state(phone)["touches"] == 0
    phone.faults.set("publish_late_s", "")
    phone.input.touch(*TOP)
    await asyncio.sleep(0.4)
    assert state(phone)["touches"] == 2
