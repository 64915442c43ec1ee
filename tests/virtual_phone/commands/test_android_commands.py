"""Android's own commands, as programs that drive phones use them."""

import asyncio
import re
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.virtual_phone.shell_runner import probe_phone, run, run_later
from tests.virtual_phone.socket_ends import connected_sockets
from virtual_phone.apps.probe_app import ProbeApp
from virtual_phone.system.byte_channels import Channel
from virtual_phone.system.phone_network import PortListener
from virtual_phone.virtual_phone import VirtualPhone

PACKAGE = "org.agentrl.probe"


@pytest.fixture(scope="module")
def phone() -> VirtualPhone:
    made = probe_phone()
    run(f"am start -n {PACKAGE}/.Main", made)
    return made


def test_getevent_has_the_range_of_the_upright_screen(phone: VirtualPhone) -> None:
    # airtest and minitouch read the maxima of 0035 and 0036; `wm size` and turns don't change them.
    for script in ("true", "wm size 200x300", "wm user-rotation lock 1"):
        out = run(f"{script}; getevent -p", phone).out
        assert re.search(r"0035  : value 0, min 0, max 71,", out)
        assert re.search(r"0036  : value 0, min 0, max 127,", out)
    run("wm size reset; wm user-rotation free", phone)
    labeled = run("getevent -lp /dev/input/event1", phone).out
    assert re.search(r"ABS_MT_POSITION_X +: value 0, min 0, max 71,", labeled)
    assert "INPUT_PROP_DIRECT" in labeled
    assert "gpio-keys" not in labeled
    assert "  vendor    0000\n" in run("getevent -i", phone).out
    assert run("getevent -p /dev/input/event9", phone).code == 1


def test_dumpsys_input_follows_the_rotation(phone: VirtualPhone) -> None:
    out = run("wm user-rotation lock 1; dumpsys -t 5 input; wm user-rotation free", phone).out
    assert "SurfaceOrientation: 1" in out
    assert "logicalFrame=[0, 0, 128, 72]" in out
    assert f"{PACKAGE}/{PACKAGE}.Main" in out
    everything = run("dumpsys", phone).out
    assert everything.count("DUMP OF SERVICE ") == run("dumpsys -l", phone).out.count("\n") - 1
    assert "real 72 x 128" in run("dumpsys display", phone).out


def test_stack_list_shows_the_app_above_the_home_screen(phone: VirtualPhone) -> None:
    lines = run("am stack list", phone).out.splitlines()
    tasks = [line for line in lines if "taskId=" in line]
    assert [PACKAGE in task for task in tasks] == [True, False]
    assert ["visible=true" in task for task in tasks] == [True, False]
    assert lines[0].startswith("RootTask id=2 bounds=[0,0][72,128]")


def test_pinned_task_is_left_by_no_key(phone: VirtualPhone) -> None:
    assert run("am task lock 2", phone).out == "Activity manager is in lockTaskMode\n"
    run("input keyevent HOME; input keyevent BACK", phone)
    assert phone.tasks.front == PACKAGE
    assert run("am task lock stop", phone).out == "Activity manager is not in lockTaskMode\n"
    run("input keyevent HOME", phone)
    assert phone.tasks.front is None
    run(f"am start -n {PACKAGE}/.Main", phone)


def test_packages_answer_intents(phone: VirtualPhone) -> None:
    launcher = "-a android.intent.action.MAIN -c android.intent.category.LAUNCHER"
    components = run(f"cmd package query-activities --components {launcher}", phone).out.split()
    assert f"{PACKAGE}/.Main" in components
    assert "com.android.settings/.Settings" in components
    brief = run(f"cmd package query-activities --brief {launcher} {PACKAGE}", phone).out
    assert brief.startswith("1 activities found:\n  Activity #0:\n")
    home = "cmd package resolve-activity --brief -c android.intent.category.HOME | tail -n 1"
    assert run(home, phone).out == "org.agentrl.launcher/.Home\n"
    assert run("cmd package resolve-activity com.nowhere", phone).out == "No activity found\n"
    for component in components:
        assert run(f"am start -n {component}", probe_phone()).code == 0, component


def test_operations_of_apps_are_kept(phone: VirtualPhone) -> None:
    assert run(f"appops get {PACKAGE}", phone).out == "No operations.\n"
    run(f"appops set {PACKAGE} android:system_alert_window allow", phone)
    run(f"cmd appops set {PACKAGE} CAMERA ignore", phone)
    assert run(f"appops get {PACKAGE} CAMERA", phone).out == "CAMERA: ignore\n"
    assert run(f"appops get {PACKAGE}", phone).out == (
        "CAMERA: ignore\nSYSTEM_ALERT_WINDOW: allow\n"
    )
    assert "Mode maybe is not valid" in run(f"appops set {PACKAGE} CAMERA maybe", phone).err
    assert "No UID for com.nowhere" in run("appops get com.nowhere", phone).err
    run("appops reset", phone)
    assert run(f"appops get {PACKAGE}", phone).out == "No operations.\n"


def test_location_can_be_switched_on(phone: VirtualPhone) -> None:
    assert run("cmd location is-location-enabled", phone).out == "false\n"
    run("cmd location set-location-enabled true", phone)
    assert run("settings get secure location_mode", phone).out == "3\n"
    assert "Location Setting: true" in run("dumpsys location", phone).out
    assert run("cmd location providers add-test-provider gps", phone).code == 255


def test_settings_are_reset_to_those_of_a_new_phone(phone: VirtualPhone) -> None:
    android_id = run("settings get secure android_id", phone).out
    assert re.fullmatch(r"[0-9a-f]{16}\n", android_id)
    run("settings put secure android_id 1; settings put secure mine 2", phone)
    assert run("settings reset secure com.nowhere", phone).code == 0
    assert run("settings get secure mine", phone).out == "2\n"
    run("settings reset secure trusted_defaults", phone)
    assert run("settings get secure mine; settings get secure android_id", phone).out == (
        f"null\n{android_id}"
    )
    assert "Invalid namespace" in run("settings put appops x y", phone).err


def test_date_starts_by_the_seed_runs_and_never_goes_back() -> None:
    phones = [VirtualPhone([ProbeApp()], size=(72, 128), tempo="quick", seed=s) for s in (5, 5, 6)]
    first, second, other = (int(run("date +%s", phone).out) for phone in phones)
    assert 0 <= second - first < 20
    assert abs(other - first) > 20
    assert time.strftime("%Y-%m-%d", time.gmtime(first)) == "2023-11-14"
    nanoseconds = [int(run("date +%s%N", phones[0]).out) for _ in range(3)]
    assert sorted(set(nanoseconds)) == nanoseconds
    # An app has its own time in the status bar, which must not reach the log.
    run(f"am start -n {PACKAGE}/.Main; input keyevent HOME; log end", phones[0])
    out = run("logcat -d -v epoch", phones[0]).out
    times = [float(line.split()[0]) for line in out.splitlines() if line[:1] != "-"]
    assert len(times) >= 2
    assert sorted(times) == times
    assert run("date -u -d @0 '+%Y %Z'", phones[0]).out == "1970 GMT\n"
    assert "Operation not permitted" in run("date -s 2020", phones[0]).err


def test_logcat_has_buffers_and_lists_of_formats(phone: VirtualPhone) -> None:
    run("logcat -c; log -t mine hello", phone)
    phone.log.add("AndroidRuntime", "FATAL EXCEPTION: x", "E", 4000)
    crash = run("logcat -b crash -d -v time,year,usec", phone).out
    assert re.fullmatch(
        r"--------- beginning of crash\n"
        r"2023-11-1\d \d\d:\d\d:\d\d\.\d{6} E/AndroidRuntime\( 4000\): FATAL EXCEPTION: x\n",
        crash,
    )
    assert "hello" in run("logcat -d", phone).out
    assert "\x1b[38;5;40mI/mine" in run("logcat -d -v color -v brief", phone).out
    assert "main: ring buffer is 256 KiB" in run("logcat -g", phone).out
    assert "Unknown -b buffer 'nope'" in run("logcat -d -b nope", phone).err
    run("logcat -c -b crash", phone)
    assert run("logcat -d -b crash", phone).out == ""
    later = run("date '+%m-%d %H:%M:%S.999'", phone).out.strip()
    assert "hello" not in run(f"logcat -d -t '{later}'", phone).out


def test_binary_log_entries_have_the_layout_of_liblog(phone: VirtualPhone) -> None:
    run("logcat -c; log -p w -t mine hello", phone)
    data = run("logcat -d -B", phone).out_bytes
    length, header, _, _, seconds, _, buffer, uid = struct.unpack_from("<HHiIIIII", data)
    assert (header, buffer, uid) == (28, 0, 2000)
    assert abs(seconds - phone.clock.now_s()) < 60
    assert data[header:] == b"\5mine\0hello\0"
    assert length == len(data) - header


def test_ps_lists_the_system_and_apps(phone: VirtualPhone) -> None:
    assert PACKAGE not in run("ps", phone).out, "only what the shell runs, as on a phone"
    everything = run("ps -A", phone).out
    pid = run(f"pidof {PACKAGE}", phone).out.strip()
    assert re.search(rf"^u0_a100 +{pid} +300 .* S {PACKAGE}$", everything, re.MULTILINE)
    assert run(f"ps -p {pid} -o pid,args", phone).out.split() == ["PID", "ARGS", pid, PACKAGE]
    full = run("ps -ef", phone).out
    assert full.split()[:8] == ["USER", "PID", "PPID", "C", "STIME", "TTY", "TIME", "CMD"]
    assert "/system/bin/init" in full
    assert "bad -o" in run("ps -o nothing", phone).err


def test_kernel_files_are_made_when_read() -> None:
    one, same, other = (VirtualPhone(size=(72, 128), seed=seed) for seed in (1, 1, 2))
    random = [run("head -c 16 /dev/urandom", p).out_bytes for p in (one, one, same, other)]
    assert random[0] == random[2] != random[3]
    assert random[0] != random[1], "the next bytes differ"
    assert run("head -c 5 /dev/zero", one).out_bytes == b"\0" * 5
    assert run("echo lost > /dev/null; cat /dev/null", one).out == ""
    up_s = float(run("cat /proc/uptime", one).out.split()[0])
    assert 3600 <= up_s < 3700
    one.restart()
    assert float(run("cat /proc/uptime", one).out.split()[0]) < 60
    first, second = (run("cat /proc/stat", same).out.split("\n") for _ in range(2))
    assert [line.split()[0] for line in first[:3]] == ["cpu", "cpu0", "cpu1"]
    total, *cores = (list(map(int, line.split()[1:])) for line in second[:3])
    assert total == [a + b for a, b in zip(*cores, strict=True)]
    assert run("grep -c ^processor /proc/cpuinfo", same).out == "2\n"
    assert "MemAvailable:" in run("cat /proc/meminfo", same).out


@pytest.mark.parametrize("path", ["/system/x", "/system/bin/sh2", "/vendor/y", "/z"])
def test_the_system_is_read_only(phone: VirtualPhone, path: str) -> None:
    assert "Read-only file system" in run(f"touch {path}", phone).err
    assert "Read-only file system" in run(f"mkdir {path}", phone).err
    assert "Read-only file system" in run("rm -r /system", phone).err
    assert "Permission denied" in run("touch /proc/x", phone).err


def test_df_agrees_with_the_space_that_is_left() -> None:
    phone = probe_phone()
    phone.faults.set("storage_mb", "3")
    free = int(run("df /data/local/tmp", phone).out.splitlines()[1].split()[3])
    assert free == 3_000_000 // 1024
    write = "head -c {} /dev/zero > /data/local/tmp/x"
    assert "No space left" in run(write.format(free * 1024 + 1024), phone).err
    assert run(f"rm -f /data/local/tmp/x; {write.format(free * 1024)}", phone).code == 0
    rows = [line.split() for line in run("df", phone).out.splitlines()[1:]]
    assert {row[-1]: int(row[3]) < 1 for row in rows} == {
        "/": True, "/dev": False, "/data": True, "/storage/emulated": True,
    }  # fmt: skip
    assert "1.0G" in run("df -h /data", probe_phone()).out
    assert "No such file" in run("df /nope", phone).err


BODY = bytes(range(256)) * 16_384


@asynccontextmanager
async def web_server() -> AsyncIterator[VirtualPhone]:
    """Return a phone with a server at its port 80: /big, /moved, and 404 for everything else."""
    phone = probe_phone()
    tasks = set[asyncio.Task[None]]()

    async def answer(channel: Channel) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await channel.read()
        path = head.split()[1]
        if path == b"/big":
            channel.write(b"HTTP/1.0 200 OK\r\nContent-Type: x\r\n\r\n" + BODY)
        elif path == b"/moved":
            channel.write(b"HTTP/1.0 302 Found\r\nLocation: /big\r\n\r\n")
        else:
            channel.write(b"HTTP/1.0 404 Not Found\r\n\r\nno")
        channel.close()

    def accept() -> Channel:
        theirs, ours = connected_sockets()
        tasks.add(asyncio.create_task(answer(ours)))
        return theirs

    phone.network.listen("tcp:80", PortListener(owner=None, accept=accept))
    yield phone
    await asyncio.gather(*tasks)


async def test_downloads_of_any_size_are_saved() -> None:
    async with web_server() as phone:
        curl = "cd /data/local/tmp; curl -s -o a -w '%{http_code} %{size_download}' "
        done = await run_later(curl + "http://localhost/big", phone)
        assert done.out == f"200 {len(BODY)}"
        assert (await run_later("cat /data/local/tmp/a", phone)).out_bytes == BODY
        await run_later("cd /data/local/tmp; curl -Lo b http://localhost/moved", phone)
        assert phone.files.read("/data/local/tmp/b") == BODY
        await run_later("cd /data/local/tmp; curl --remote-name http://localhost/big", phone)
        assert phone.files.read("/data/local/tmp/big") == BODY
        assert (await run_later("curl http://localhost/moved", phone)).out == ""
        assert (await run_later("curl -L http://localhost/moved", phone)).out_bytes == BODY
        assert (await run_later("curl -f http://localhost/x", phone)).code == 22
        assert (await run_later("curl -i http://localhost/x", phone)).out.endswith("\r\n\r\nno")
        assert (await run_later("curl http://localhost:81/", phone)).code == 7
        assert (await run_later("curl --nope x", phone)).code == 2
        phone.faults.set("storage_mb", "1")
        assert (await run_later("curl -o c http://localhost/big", phone)).code != 0
