"""End what a failing test has started, so that no test waits for a process without end."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agentrl.child_process import descendants

# A shell starts background jobs with SIGINT ignored, and every process of a test would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_leave = subprocess.Popen.__exit__


def _kill_and_leave(process: Any, kind: Any, error: Any, traceback: Any) -> None:
    """Without this, `with subprocess.Popen` would wait for a server that was never stopped."""
    if kind is not None:
        process.kill()
    _leave(process, kind, error, traceback)


subprocess.Popen.__exit__ = _kill_and_leave  # type: ignore[method-assign]

_PATIENCE_S = 30.0
"""After the test's own timeout, which may be waiting for such a process to end."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """End the processes of a test that fails, or that is still running long after its timeout."""
    began = _now()
    own = item.get_closest_marker("timeout")
    limit_s = float(own.args[0] if own else item.config.getini("timeout") or 600.0)
    hangs = threading.Timer(limit_s + _PATIENCE_S, _kill_those_since, [began])
    hangs.daemon = True
    hangs.start()
    try:
        return (yield)
    except BaseException:
        _kill_those_since(began)
        raise
    finally:
        hangs.cancel()


def _kill_those_since(began: float) -> None:
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            if _started(pid) >= began:
                os.kill(pid, signal.SIGKILL)


def _now() -> float:
    """Seconds since the machine started, as the kernel rounds them for processes."""
    ticks = os.sysconf("SC_CLK_TCK")
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * ticks) / ticks


def _started(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")
