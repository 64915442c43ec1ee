import os
import signal
import subprocess
import sys
from pathlib import Path

TESTS = """
import signal, subprocess, sys

from tests.leftovers import pytest_runtest_call


def test_fails_beside_a_server(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as server:
        print(server.pid, file=open("pid", "w"))
        assert server.poll() == 0


def test_ctrl_c_reaches_a_child():
    code = "import time; print(1, flush=True); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=-1, stderr=-1)
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    assert child.wait(10) == -signal.SIGINT
"""


def test_a_failing_test_ends_its_processes_also_where_sigint_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.leftovers import pytest_runtest_call\n")
    (tmp_path / "test_one.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_one.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
