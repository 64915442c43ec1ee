"""Commands under a supervisor, with children that hide in sessions of their own."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agentrl.child_process import descendants, supervised

DAEMON = """
import os, time
os.setsid()
os.fork() and os._exit(0)
os.write(1, b"%d\\n" % os.getpid())
time.sleep(600)
"""
STARTS_DAEMONS = f"""
import os, subprocess, sys, time
code = {DAEMON!r}
for _ in range(2):
    subprocess.Popen([sys.executable, "-c", code])
os.write(1, b"ready\\n")
"""
"""Starts two daemons, each detached by setsid and a second fork; they keep stdout open."""


def is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_end_of(pids: list[int]) -> None:
    end = time.monotonic() + 20
    while any(map(is_running, pids)):
        assert time.monotonic() < end, f"still running: {[*filter(is_running, pids)]}"
        time.sleep(0.02)


@pytest.fixture(params=["sys.stdin.read()", "time.sleep(600)"], ids=["well-behaved", "stubborn"])
def started(request) -> Iterator[tuple["subprocess.Popen[str]", list[int]]]:
    """A supervised command, which ends when its stdin does or never, and its two daemons."""
    process = subprocess.Popen(
        supervised([sys.executable, "-c", STARTS_DAEMONS + request.param]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = {process.stdout.readline().strip() for _ in range(3)}
    yield process, [int(line) for line in lines - {"ready"}]
    process.terminate()
    process.communicate()


def test_descendants_in_other_sessions_are_found_and_end_on_sigterm(started) -> None:
    process, daemons = started
    assert set(daemons) <= set(descendants(process.pid))
    process.terminate()
    assert process.wait(10) == -signal.SIGTERM
    assert process.stdout.read() == ""  # nothing keeps it open
    assert not any(map(is_running, daemons))


def test_they_end_although_the_first_process_is_killed(started) -> None:
    """Ray kills the children of a worker that exits."""
    process, daemons = started
    process.kill()
    wait_for_end_of(daemons)


@pytest.mark.parametrize(
    ("code", "status"),
    [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", -9), ("os.abort()", -signal.SIGABRT)],
)
def test_a_command_that_ends_takes_them_along_and_its_status_is_passed_on(code, status) -> None:
    command = supervised([sys.executable, "-c", STARTS_DAEMONS + code])
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=20)
    assert done.returncode == status
    assert not any(is_running(int(line)) for line in done.stdout.split() if line != "ready")


OWNER = """
import subprocess, sys, threading, time
from agentrl.child_process import supervised
command = supervised([sys.executable, "-c", sys.argv[1]])
thread = threading.Thread(target=lambda: subprocess.Popen(command, start_new_session=True))
thread.start()
thread.join()
time.sleep(600)
"""


def test_they_end_with_the_process_that_started_it_but_not_with_its_thread() -> None:
    command = [sys.executable, "-c", OWNER, STARTS_DAEMONS + "time.sleep(600)"]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    lines = {owner.stdout.readline().strip() for _ in range(3)}
    daemons = [int(line) for line in lines - {"ready"}]
    time.sleep(0.1)  # the thread has ended before; a signal would have arrived by now
    assert all(map(is_running, daemons))
    owner.kill()
    owner.communicate()  # returns when nothing has its output open any more
    wait_for_end_of(daemons)


ORPHANS = """
import os, time
for _ in range(5):
    child = os.fork()
    if not child:
        os.fork()
        os._exit(0)
    os.waitpid(child, 0)
print("started", flush=True)
time.sleep(600)
"""


def test_orphans_that_end_do_not_stay_as_zombies() -> None:
    process = subprocess.Popen(
        supervised([sys.executable, "-c", ORPHANS]), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    supervisor = descendants(process.pid)[0]
    end = time.monotonic() + 10
    while len(psutil.Process(supervisor).children()) > 1:
        assert time.monotonic() < end
        time.sleep(0.02)
    process.terminate()
    process.communicate()
