"""What must hold on every phone: AGENTRL_TEST_SERIAL=SERIAL pytest -m phone; else on a virtual one.

The phone is awake and unlocked, with nothing open that must not be lost: the home screen comes, a
browser may open, and the number game is played twice.
"""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from agentrl import cli
from agentrl.devices import Key, Tap
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb_phone import AdbPhone
from agentrl.errors import AppNotInFront, DeviceError
from agentrl.extension_points import CAPTURE, DRIVER
from tests.devices.adb.hostile_arguments import HOSTILE
from virtual_phone import spawn

pytestmark = [pytest.mark.adb, pytest.mark.phone]
SERIAL = os.environ.get("AGENTRL_TEST_SERIAL")


@pytest.fixture(scope="module")
def serial(request: pytest.FixtureRequest) -> Iterator[str]:
    if SERIAL:  # with the user's own adb server, which knows it
        yield SERIAL
        return
    server: AdbServer = request.getfixturevalue("adb_server")
    apps = [
        "virtual_phone.apps.probe_app:ProbeApp",
        "agentrl.envs.android.number_game.app:NumberGameApp",
    ]
    with spawn(1, apps, effect_delay_ms=(0, 50)) as phones:
        yield phones.serials[0]
    server.disconnect(phones.serials[0])


@pytest.fixture(params=DRIVER.names())
def phone(serial: str, request: pytest.FixtureRequest) -> Iterator[AdbPhone]:
    server = AdbServer.from_environment(request.param)
    server.ensure()
    with closing(AdbPhone(server, serial)) as phone:
        phone.perform(Key("WAKEUP"))
        phone.perform(Key("HOME"))
        yield phone


def test_every_capture_shows_the_same_screen(phone: AdbPhone) -> None:
    pictures, failures = {}, {}
    for name in CAPTURE.names():
        phone.use(capture=name)
        try:
            pictures[name] = phone.screenshot()
        except DeviceError as error:  # some phones lack framebuffer: and screenrecord
            failures[name] = error
    assert {"raw", "png"} <= pictures.keys(), failures
    width, height = phone.size()
    for name, picture in pictures.items():
        assert picture.shape == (height, width, 3), name
        differs = np.abs(picture.astype(int) - pictures["raw"]) > 40
        assert differs.mean() < 0.05, f"{name}: a clock may have moved on, and no more"


def test_arguments_reach_the_shell_unchanged(phone: AdbPhone) -> None:
    texts = [text for text in HOSTILE if len(text) < 200]
    for shell in (phone.persistent_shell, phone.one_shot_shell):
        phone.internal_shell = shell
        results = phone.run_internal([("printf", "%s", text) for text in texts])
        for text, result in zip(texts, results, strict=True):
            assert result.output == text.encode().decode("utf-8", "replace")


def test_nothing_is_touched_where_another_app_is_in_front(phone: AdbPhone) -> None:
    front = phone.focus()
    for action in (Tap(0.5, 0.5), Key("BACK")):
        with pytest.raises(AppNotInFront, match=r"org\.example\.absent is not in front"):
            phone.send_action(action, "org.example.absent", ["org.example.absent"])
    assert phone.focus() == front
    assert front is not None
    phone.send_action(Key("HOME"), "org.example.absent", ["org.example.absent", front])


def test_a_phone_reconnects(phone: AdbPhone) -> None:
    number = phone.serialno()
    phone.reconnect()
    assert phone.serialno() == number


@pytest.mark.slow
def test_the_doctor_finds_nothing_wrong(serial: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.run(["devices", "doctor", serial])
    assert code == 0, capsys.readouterr().out


@pytest.mark.slow
def test_the_expert_wins_two_number_games(
    serial: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.run([
        "eval", "number_game_phone", f'devices.source=["{serial}"]', "--policy=expert",
        "--episodes=2", "--json", "rollout.launcher=local", "logging=[file]",
        f"run.dir={tmp_path / 'run'}",
    ])  # fmt: skip
    said = capsys.readouterr()
    assert code == 0, said.err[-3000:]
    assert json.loads(said.out)["accuracy"] == 1
