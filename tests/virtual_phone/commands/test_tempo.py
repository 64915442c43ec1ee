"""Gestures take time on phones with `tempo="real"`, and none on quick phones."""

import asyncio
import json
import time

import pytest

from tests.virtual_phone.shell_runner import run_later
from virtual_phone import spawn
from virtual_phone.apps.probe_app import ProbeApp
from virtual_phone.errors import SettingError
from virtual_phone.phones_spec import Tempo
from virtual_phone.virtual_phone import VirtualPhone

LAUNCH = "am start -n org.agentrl.probe/.Main"


def phone_of(tempo: Tempo) -> VirtualPhone:
    return VirtualPhone([ProbeApp()], size=(72, 128), tempo=tempo, effect_delay_ms=(0, 0))


async def took_s(command: str, phone: VirtualPhone) -> float:
    start_s = time.monotonic()
    assert (await run_later(command, phone)).code == 0
    return time.monotonic() - start_s


@pytest.mark.parametrize(
    ("command", "least_s"),
    [
        ("input swipe 10 20 30 90 700", 0.7),
        ("input swipe 30 90 30 90 700", 0.7),
        (
            "input draganddrop 10 20 30 90 300",
            0.7,
        ),  # Android waits 400 ms before it picks up the item
        ("input keyevent --longpress BACK", 0.5),
        ("input swipe 10 20 30 90", 0.3),
    ],
)
async def test_gesture_takes_its_time_while_other_phones_go_on(
    command: str, least_s: float
) -> None:
    real, other, quick = phone_of("real"), phone_of("real"), phone_of("quick")
    for phone in (real, other, quick):
        await run_later(LAUNCH, phone)
    gesture = asyncio.create_task(took_s(command, real))
    taps = sum([await took_s("input tap 10 20", other) for _ in range(20)])
    assert not gesture.done(), "the gesture ended before 20 taps on another phone"
    assert await took_s(command, quick) < least_s
    assert taps < least_s
    assert least_s <= await gesture < least_s + 2


async def test_app_sees_a_swipe_when_it_ends() -> None:
    phone = phone_of("real")
    await run_later(LAUNCH, phone)
    swipe = asyncio.create_task(run_later("input swipe 10 40 30 90 300", phone))
    await asyncio.sleep(0.05)
    state = "cat /data/local/tmp/agentrl/org.agentrl.probe.json"
    assert json.loads((await run_later(state, phone)).out)["touches"] == 0
    await swipe
    assert json.loads((await run_later(state, phone)).out)["touches"] == 1
    installed = phone.tasks.apps["org.agentrl.probe"]
    assert (installed.inputs[-1][0], installed.inputs[-1][-1]) == ("swipe", 300)


async def test_finger_that_rests_is_no_tap() -> None:
    down_up = "input motionevent DOWN 30 90; sleep {}; input motionevent UP 30 90"
    for tempo, seconds, name in (("real", 0.5, "swipe"), ("real", 0.0, "touch")):
        phone = phone_of(tempo)
        await run_later(LAUNCH, phone)
        await run_later(down_up.format(seconds), phone)
        assert phone.tasks.apps["org.agentrl.probe"].inputs[-1][0] == name


def test_unknown_tempo_is_rejected() -> None:
    with pytest.raises(SettingError, match="tempo='fast' must be real or quick"):
        spawn(1, tempo="fast")  # type: ignore[arg-type]
