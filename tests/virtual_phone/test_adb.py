"""The real adb program and server against virtual phones."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from agentrl.devices.adb import AdbServer, find_adb
from agentrl.errors import DeviceError
from virtual_phone import VirtualPhones, spawn
from virtual_phone.errors import SettingError
from virtual_phone.protocol import adb_packets

pytestmark = pytest.mark.adb
PROBE = "virtual_phone.apps.probe_app:ProbeApp"
STATE = "/data/local/tmp/agentrl/org.agentrl.probe.json"


@pytest.fixture(scope="module")
def phones(adb_server: AdbServer) -> Iterator[VirtualPhones]:
    with spawn(2, [PROBE], tempo="quick") as running:
        for serial in running.serials:
            adb_server.connect(serial)
        yield running
        for serial in running.serials:
            adb_server.disconnect(serial)


def adb(phones: VirtualPhones, *arguments: str, input: bytes | None = None) -> bytes:
    return adb_on(phones.serials[0], *arguments, input=input)


def adb_on(serial: str, *arguments: str, input: bytes | None = None) -> bytes:
    command = [find_adb(), "-s", serial, *arguments]
    return subprocess.run(
        command, capture_output=True, check=True, timeout=20, input=input or b""
    ).stdout


def test_adb_lists_all_phones_of_one_process(adb_server: AdbServer, phones: VirtualPhones) -> None:
    listed = adb(phones, "devices").decode()
    assert all(f"{serial}\tdevice" in listed for serial in phones.serials)
    assert all(port not in range(5555, 5586) for port in phones.ports)


def test_the_shell_gives_output_errors_and_exit_code(phones: VirtualPhones) -> None:
    done = subprocess.run(
        [find_adb(), "-s", phones.serials[0], "shell", "echo out; nope; exit 7"],
        capture_output=True,
        timeout=20,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.stdout == b"out\n"
    assert b"nope: inaccessible or not found" in done.stderr
    assert done.returncode == 7


def test_an_app_is_started_touched_and_publishes_its_state(phones: VirtualPhones) -> None:
    adb(phones, "shell", "am start -n org.agentrl.probe/.Main --es level '2 hard' --ei seed 5")
    assert b'"extras": {"level": "2 hard", "seed": "5"}' in adb(phones, "shell", f"cat {STATE}")
    adb(phones, "shell", "input tap 100 200; input swipe 1 300 300 900 100; input keyevent 66")
    output = adb(phones, "shell", f"cat {STATE}")
    assert b'"touches": 3' in output
    assert b'"keys": ["KEYCODE_ENTER"]' in output
    focus = adb(phones, "shell", "dumpsys window displays | grep mCurrentFocus")
    assert b"org.agentrl.probe/org.agentrl.probe.Main}" in focus


def test_png_and_raw_captures_show_the_same_image(phones: VirtualPhones) -> None:
    png = adb(phones, "exec-out", "screencap", "-p")
    raw = adb(phones, "exec-out", "screencap")
    assert np.frombuffer(raw[:16], "<u4").tolist()[:3] == [720, 1280, 1]
    pixels = np.frombuffer(raw, np.uint8, offset=16).reshape(1280, 720, 4)
    shown = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert np.array_equal(pixels[..., :3], shown)
    through_v2 = adb(phones, "shell", "screencap")
    assert through_v2 == raw


def test_files_are_pushed_listed_and_pulled(phones: VirtualPhones, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    (tmp_path / "there").write_bytes(content)
    adb(phones, "push", str(tmp_path / "there"), "/sdcard/new/x.bin")
    assert b"x.bin" in adb(phones, "ls", "/sdcard/new")
    adb(phones, "pull", "/sdcard/new/x.bin", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == content


def test_links_are_pushed_and_pulled(phones: VirtualPhones, tmp_path: Path) -> None:
    sent, scratch = tmp_path / "sent", "/data/local/tmp"
    (sent / "d").mkdir(parents=True)
    (sent / "d/file").write_bytes(b"deep")
    (sent / "link").symlink_to("d/file")
    (sent / "loop").symlink_to("loop")
    adb(phones, "push", str(sent), scratch)
    shown = adb(phones, "shell", f"ls -l {scratch}/sent; cat {scratch}/sent/link").decode()
    assert shown.endswith("loop -> loop\ndeep")
    assert "link -> d/file\n" in shown
    adb(phones, "shell", f"cd {scratch}; ln -s sent/d linked; ln -s nowhere dangling")
    adb(phones, "pull", f"{scratch}/linked", str(tmp_path))
    assert (tmp_path / "linked/file").read_bytes() == b"deep"
    adb(phones, "pull", f"{scratch}/sent/link", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == b"deep"
    (tmp_path / "new").write_bytes(b"new")
    adb(phones, "push", str(tmp_path / "new"), f"{scratch}/linked")
    assert adb(phones, "shell", f"cat {scratch}/sent/d/new") == b"new"
    for name, error in (("dangling", b"No such file"), ("sent/loop", b"levels of symbolic links")):
        command = [find_adb(), "-s", phones.serials[0], "pull", f"{scratch}/{name}"]
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=20, cwd=tmp_path, input=b""
        )
        assert (done.returncode, error in done.stderr) == (1, True), done


def test_nc_talks_to_this_computer_through_a_reversed_port(phones: VirtualPhones) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        adb(phones, "reverse", "tcp:8124", f"tcp:{listener.getsockname()[1]}")
        command = [find_adb(), "-s", phones.serials[0], "shell", "echo up | nc -w 5 localhost 8124"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as client:
            with listener.accept()[0] as connection:
                connection.settimeout(20)
                assert connection.recv(100) == b"up\n"
                connection.sendall(b"down\n")
            assert client.communicate(timeout=20)[0] == b"down\n"
    adb(phones, "reverse", "--remove-all")


def test_interactive_shell_and_commands_read_standard_input(
    phones: VirtualPhones,
) -> None:
    assert b"typed" in adb(phones, "shell", input=b"echo typed\nexit\n")
    assert adb(phones, "shell", "cat", input=b"a\nb") == b"a\nb"


def test_exec_in_stores_what_was_sent(phones: VirtualPhones) -> None:
    sent = os.urandom(300_000)
    adb(phones, "exec-in", "cat > /sdcard/sent", input=sent)
    end = time.monotonic() + 20
    while (stored := adb(phones, "exec-out", "cat /sdcard/sent")) != sent:
        assert time.monotonic() < end, len(stored)
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("wm size", "Physical size: 720x1280"),
        ("wm density", "Physical density: 320"),
        ("getprop sys.boot_completed", "1"),
        ("pm list packages", "package:org.agentrl.probe"),
        ("pm path org.agentrl.probe", "package:/data/app/org.agentrl.probe/base.apk"),
        ("monkey -p org.agentrl.probe 1", "Events injected: 1"),
        ("dumpsys activity activities", "mResumedActivity: ActivityRecord{"),
        ("am start -n no.such/.App", "Error type 3"),
        ("am start -S -n org.agentrl.probe/.Main --es refuse 1", "refuses its extras: refuse=1"),
    ],
)
def test_commands_answer_as_on_a_real_phone(
    phones: VirtualPhones, command: str, answer: str
) -> None:
    assert answer in adb(phones, "shell", f"{command} 2>&1; true").decode()


def test_adb_logcat_prints_log_entries(phones: VirtualPhones) -> None:
    adb(phones, "shell", "am start -n org.agentrl.probe/.Main")
    assert b"START u0 org.agentrl.probe" in adb(phones, "logcat", "-d")


def test_one_snapshot_starts_many_phones_from_the_same_state(phones: VirtualPhones) -> None:
    first, second = phones.serials
    script = f"am start -S -n org.agentrl.probe/.Main --es level 3; input tap 99 99; cat {STATE}"
    state = adb_on(first, "shell", script).splitlines()[-1]
    saved = adb_on(first, "shell", "cmd agentrl dump")
    assert adb_on(second, "shell", "cmd agentrl load", input=saved) == b""
    assert adb_on(second, "shell", f"cat {STATE}") == state
    frame = adb_on(second, "exec-out", "screencap")
    assert frame == adb_on(first, "exec-out", "screencap")
    adb_on(second, "shell", "input tap 99 99")
    assert adb_on(second, "exec-out", "screencap") != frame


def test_faults_can_be_set_by_a_plan_and_over_adb(adb_server: AdbServer) -> None:
    plan = {
        "all": {"always": {"input": "lost"}},
        "phones": {1: {"schedule": [{"fault": "capture", "value": "header"}]}},
    }
    with spawn(2, [PROBE], tempo="quick", faults=plan) as running:
        for serial in running.serials:
            adb_server.connect(serial)
        first, second = running.serials
        assert adb_on(first, "exec-out", "screencap")[:4] != b"\xff" * 4
        end = time.monotonic() + 20
        while adb_on(second, "exec-out", "screencap") != b"\xff" * 16:
            assert time.monotonic() < end
        script = "getprop debug.agentrl.fault.input; setprop debug.agentrl.fault.drop 1"
        assert adb_on(first, "shell", script) == b"lost\n"
        dropped = subprocess.run(
            [find_adb(), "-s", first, "shell", "echo here"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=20,
            check=False,
        )
        assert dropped.stdout == b""
        for serial in running.serials:
            adb_server.disconnect(serial)


def test_a_phone_with_auth_accepts_a_client_that_its_user_allows(adb_server: AdbServer) -> None:
    with spawn(1, auth=True) as running:
        (serial,) = running.serials
        with contextlib.suppress(DeviceError):  # the phone may not have accepted the key yet
            adb_server.connect(serial)
        end = time.monotonic() + 20
        while adb_server.devices()[serial] != "device":
            assert time.monotonic() < end
        adb_server.disconnect(serial)
        adb_server.connect(serial)  # the key is trusted now
        assert adb_on(serial, "shell", "wc -l < /data/misc/adb/adb_keys") == b"1\n"
        adb_server.disconnect(serial)


def test_a_phone_with_a_fixed_key_list_stays_unauthorized(adb_server: AdbServer) -> None:
    with spawn(1, auth=True, keys=[]) as running:
        (serial,) = running.serials
        with pytest.raises(DeviceError):
            adb_server.connect(serial, 3)
        assert adb_server.devices()[serial] == "unauthorized"
        adb_server.disconnect(serial)


def test_phones_whose_process_is_killed_leave_adb_s_list_at_once(adb_server: AdbServer) -> None:
    with spawn(2, adb_server=(adb_server.host, adb_server.port)) as running:
        for serial in running.serials:
            adb_server.connect(serial)
        os.kill(running.pid, signal.SIGKILL)
        end = time.monotonic() + 20  # adb itself keeps lost phones for a minute
        while set(running.serials) & set(adb_server.devices()):
            assert time.monotonic() < end, adb_server.devices()
            time.sleep(0.02)


def test_phones_listen_on_loopback_only(phones: VirtualPhones) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 1))
        except OSError:
            pytest.skip("this machine has no other address")
        own = probe.getsockname()[0]
    if own.startswith("127."):
        pytest.skip("this machine has no other address")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((own, phones.ports[0]), 5)


def test_garbage_on_the_port_does_not_disturb_the_phone(phones: VirtualPhones) -> None:
    with socket.create_connection(("127.0.0.1", phones.ports[0]), 5) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert stranger.recv(100) == b""
    assert adb(phones, "shell", "echo still here") == b"still here\n"


@pytest.mark.parametrize(
    ("app", "message"),
    [
        ("virtual_phone.apps.probe_app:ProbApp", "did you mean 'ProbeApp'"),
        ("no.such.module:App", "cannot be imported"),
        (
            ("virtual_phone.apps.probe_app:ProbeApp", {"color": 1}),
            "rejects kwargs={'color': 1}",
        ),
        ("json:JSONDecoder", "json:JSONDecoder is not an app, because it does not define launch"),
        ("os:getcwd", "is not an app"),
        ("os:sep", "not callable"),
        ("sys:exit", "sys:exit failed with"),
    ],
)
def test_an_invalid_app_is_reported(app: object, message: str) -> None:
    with pytest.raises(SettingError, match=message.replace("{", r"\{")):
        spawn(1, [app])


@pytest.mark.parametrize("size", [(0, 0), (63, 640), (360, 4097), (99999, 99999)])
def test_an_invalid_screen_size_is_rejected_before_a_process_starts(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subprocess.Popen", None)
    with pytest.raises(SettingError, match="64 to 4096"):
        spawn(1, [PROBE], size=size)


def test_output_of_an_app_does_not_confuse_the_parent(tmp_path: Path) -> None:
    code = "print('hello')\nfrom virtual_phone.apps.probe_app import ProbeApp\n"
    (tmp_path / "loud_app.py").write_text(code)
    with spawn(1, [f"{tmp_path / 'loud_app.py'}:ProbeApp"]) as phones:
        assert phones.alive


def test_phones_end_with_their_parent_after_kill_9() -> None:
    script = (
        "import time; from virtual_phone import spawn\n"
        "phones = spawn(1); print(phones.pid, *phones.ports, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid, port = map(int, parent.stdout.readline().split())
    socket.create_connection(("127.0.0.1", port), 5).close()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 10
    while _runs(pid):
        assert time.monotonic() < end, "the phones outlive their parent"
        time.sleep(0.01)


def test_phones_outlive_the_thread_that_started_them() -> None:
    started: list[VirtualPhones] = []
    thread = threading.Thread(target=lambda: started.append(spawn(1)))
    thread.start()
    thread.join()
    with started[0] as phones:
        with socket.create_connection(("127.0.0.1", phones.ports[0]), 5) as server:
            server.sendall(
                adb_packets.encode(adb_packets.Packet(command=adb_packets.CNXN, arg0=1, arg1=4096))
            )
            assert server.recv(4) == b"CNXN"
        assert phones.alive
    assert not phones.alive


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_the_package_runs_by_itself(adb_server: AdbServer) -> None:
    blocked = "import sys; sys.modules['agentrl'] = None; import virtual_phone.phone_host_process"
    subprocess.run([sys.executable, "-c", blocked], check=True, timeout=20)
    with subprocess.Popen(
        [sys.executable, "-m", "virtual_phone", "--tempo", "quick"],
        stdout=subprocess.PIPE, text=True,
    ) as phones:  # fmt: skip
        assert phones.stdout is not None
        *command, serial = phones.stdout.readline().split()
        assert command == ["adb", "connect"]
        adb_server.connect(serial)
        printed = adb_on(serial, "shell", "pm list packages").decode()
        assert "package:org.agentrl.probe" in printed
        adb_server.disconnect(serial)
        phones.send_signal(signal.SIGINT)
        assert phones.wait(10) == 0
