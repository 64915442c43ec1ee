import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from agentrl import cli
from agentrl.devices import open_source
from agentrl.devices.adb import AdbServer
from agentrl.devices.pool.phones_in_use import phones_in_use
from virtual_phone import spawn
from virtual_phone.apps.app import state_path

pytestmark = pytest.mark.adb


@pytest.fixture(scope="module")
def serial(adb_server: AdbServer) -> Iterator[str]:
    with spawn(1, ["virtual_phone.apps.probe_app:ProbeApp"], tempo="quick") as phones:
        adb_server.connect(phones.serials[0])
        yield phones.serials[0]
    adb_server.disconnect(phones.serials[0])


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert cli.run(["devices", *arguments]) == code
    return capsys.readouterr().out


def test_an_option_of_the_list_before_a_command_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["devices", "--driver", "ppadb", "screenshot"]) == 2
    assert "agentrl devices screenshot" in capsys.readouterr().err


def test_phones_are_listed(
    serial: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = said(capsys)
    assert serial in listed
    assert "Virtual" in listed
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    narrow = re.sub(r"\x1b\[[\d;]*m", "", said(capsys))
    assert set(narrow.split()) == set(listed.split())


def test_a_picture_is_written(
    serial: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said(capsys, "screenshot", serial, "-o", str(tmp_path / "x.png"))
    with Image.open(tmp_path / "x.png") as picture:
        assert picture.size == (720, 1280)
    assert cli.run(["devices", "screenshot", serial, "-o", str(tmp_path / "x.jpg")]) == 2


def test_a_tap_arrives(serial: str, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "shell", serial, "am", "start", "-W", "-n", "org.agentrl.probe/.Main")
    said(capsys, "tap", serial, "0.5", "0.75")
    said(capsys, "tap", "0.5", "0.75")  # on the only phone
    state = said(capsys, "shell", serial, "cat", state_path("org.agentrl.probe"))
    assert '"touches": 2' in state
    assert cli.run(["devices", "tap", "R58M123", "0.5", "0.75"]) == 2
    assert f"R58M123: no such phone. Connected: {serial}" in capsys.readouterr().err
    for wrong in (("0.5", "0.75", serial), ("0.5",), (serial, "0.5", "1.5")):
        assert cli.run(["devices", "tap", *wrong]) == 2


def test_a_command_arrives_as_it_is_given_and_its_code_comes_back(
    serial: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "shell", serial, "echo", "a;b", "$(id)") == "a;b $(id)\n"
    said(capsys, "shell", serial, "false", code=1)
    assert "sdcard\n" in said(capsys, "shell", serial, "ls /")
    assert said(capsys, "shell", serial, "ls / | grep sdc; exit 3", code=3) == "sdcard\n"


@pytest.mark.slow
def test_ways_are_measured(serial: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = said(capsys, "bench", serial, "--rounds=1")
    assert "picked" in table
    assert "Next: agentrl train number_game devices.capture=" in table


def test_the_doctor_checks_all_phones_that_no_job_uses(
    serial: str,
    unused_serial: str,
    adb_server: AdbServer,
    tiny_vlm: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    adb_server.connect(unused_serial)
    pool = open_source("virtual:1")
    (in_use,) = (phone.serial for phone in pool.stats())
    try:
        examined = said(capsys, "doctor", "--dialect=ui-tars-1.5", f"--model={tiny_vlm}")
    finally:
        pool.close()
    both = sorted((serial, unused_serial))
    assert f"{in_use}: in use by a running job, not checked\nChecking 2 phones, 4" in examined
    assert f"1 minute (seconds for virtual phones): {', '.join(both)}. To check only" in examined
    assert [line for line in examined.splitlines() if line in both] == both
    assert "2 of 2 phones are ready for jobs." in examined
    assert " ".join(examined.split()).count("25 taps hit the target's middle within") == 2
    assert in_use not in phones_in_use()
    unusable = said(capsys, "doctor", "NOSUCHPHONE", code=1)
    assert "fix:" in unusable
    assert "0 of 1 phones are ready for jobs." in unusable


def test_who_comes_and_goes_is_told(adb_server: AdbServer, serial: str) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-m", "agentrl", "devices", "watch", "--seconds=60"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    lines = iter(watching.stdout or ())
    assert any(line.split()[1:] == [serial, "device"] for line in lines)
    # On its way it may be `offline` or `connecting` for a moment.
    adb_server.disconnect(serial)
    assert any(line.split()[1:] == [serial, "gone"] for line in lines)
    adb_server.connect(serial)
    assert any(line.split()[1:] == [serial, "device"] for line in lines)
    watching.kill()
    watching.communicate(timeout=20)


def test_a_phone_is_disconnected(
    adb_server: AdbServer, serial: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "disconnect", serial).startswith(f"{serial} is disconnected\n")
    assert serial not in adb_server.devices()
    assert cli.run(["devices", "disconnect", serial]) == 2
    assert "is not connected" in capsys.readouterr().err
    adb_server.connect(serial)


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("127.0.0.1:1", "123456", "Failed: |is too old to pair"),
        ("127.0.0.1:1", "12345", "must have six digits"),
        ("127.0.0.1:1", "$(id)a", "must have six digits"),
        ("phone", "123456", "must have the form HOST:PORT"),
        ("8.8.8.8:1", "123456", "public address"),
    ],
)
def test_a_phone_that_cannot_be_paired_with_says_why(
    adb_server: AdbServer, capsys: pytest.CaptureFixture[str], address: str, code: str, words: str
) -> None:
    assert cli.run(["devices", "pair", address, f"--code={code}"]) != 0
    assert re.search(words, capsys.readouterr().err)


def test_a_folder_that_is_not_there_is_named(
    serial: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["devices", "screenshot", serial, "--to=/no/such/x.png"]) == 2
    assert "the folder /no/such does not exist" in capsys.readouterr().err


def test_an_address_is_connected_or_refused(
    adb_server: AdbServer, serial: str, capsys: pytest.CaptureFixture[str]
) -> None:
    adb_server.disconnect(serial)
    assert said(capsys, "connect", serial).startswith(f"{serial} is ready\n")
    for address, words in (
        ("phone", "must have the form HOST:PORT"),
        ("8.8.8.8:5555", "public address"),
    ):
        assert cli.run(["devices", "connect", address]) == 2
        assert words in capsys.readouterr().err
    assert cli.run(["devices", "connect", "adb-NONE-x7Qa1f._adb-tls-connect._tcp"]) == 1
    assert "cannot be connected: " in capsys.readouterr().err


def test_the_only_phone_that_is_ready_need_not_be_named(
    serial: str, adb_server: AdbServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with spawn(1, ["virtual_phone.apps.probe_app:ProbeApp"]) as phones:
        gone = phones.serials[0]
        adb_server.connect(gone)
    end = time.monotonic() + 20
    while adb_server.devices().get(gone) == "device":
        assert time.monotonic() < end
        time.sleep(0.05)
    assert adb_server.devices()[gone] == "offline"
    said(capsys, "screenshot", "-o", str(tmp_path / "x.png"))
    adb_server.disconnect(gone)
