import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.devices import open_source
from agentrl.devices.adb import AdbServer, find_adb
from agentrl.errors import ConfigError

pytestmark = pytest.mark.adb
UP = [sys.executable, "-c", "from agentrl.cli.virtual_phones import app; app()", "up"]


def test_phone_up_prints_how_to_connect_and_stops_cleanly(adb_server: AdbServer) -> None:
    process = subprocess.Popen(
        [
            *UP,
            "-n",
            "2",
            "--app",
            "virtual_phone.apps.probe_app:ProbeApp",
            "--size",
            "360x640",
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    serials = [process.stdout.readline().strip() for _ in range(2)]
    assert f"-s {serials[0]} shell" in process.stdout.readline()
    assert {adb_server.devices()[serial] for serial in serials} == {"device"}
    size = subprocess.run(
        [find_adb(), "-s", serials[1], "shell", "wm", "size"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=20,
        check=True,
    )
    assert size.stdout == b"Physical size: 360x640\n"
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=20)[0]
    assert output.endswith("All phones have stopped.\n")
    assert process.returncode == 0
    assert not set(serials) & set(adb_server.devices())


def test_phones_of_phone_up_have_the_probe_app_of_the_doctor_and_the_faults_of_a_file(
    adb_server: AdbServer, tmp_path: Path
) -> None:
    (tmp_path / "flaky.yaml").write_text("all: {always: {slow_start_s: 0.5}}")
    process = subprocess.Popen(
        [*UP, "--faults", str(tmp_path / "flaky.yaml")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    serial = process.stdout.readline().strip()
    assert f"-s {serial} shell" in process.stdout.readline()
    result = subprocess.run(
        [
            *(find_adb(), "-s", serial, "shell"),
            "getprop debug.agentrl.fault.slow_start_s; pm list packages org.agentrl.probe",
        ],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=20,
        check=True,
    )
    assert result.stdout == b"0.5\npackage:org.agentrl.probe\n"
    process.terminate()
    assert process.communicate(timeout=20)[0].endswith("All phones have stopped.\n")
    assert process.returncode == 0


def test_too_many_phones_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_phones=1000000"):
        open_source("virtual:1000000")


def test_phone_up_rejects_unknown_faults(tmp_path: Path) -> None:
    (tmp_path / "flaky.yaml").write_text("all: {always: {slow_strat_s: 0.5}}")
    done = subprocess.run(
        [*UP, "--faults", str(tmp_path / "flaky.yaml")],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode
    assert b"did you mean 'slow_start_s'" in done.stderr


def test_phone_up_reports_an_unreachable_adb_server(adb_server: AdbServer) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "from agentrl.cli import main; main()", "phone", *UP[3:]],
        env={**os.environ, "ANDROID_ADB_SERVER_ADDRESS": "a..b"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("DeviceError: adb server, host:version: unknown host")
