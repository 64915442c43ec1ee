"""Kill the Ray processes that would otherwise linger for a minute after their driver is killed.

`ray_cluster` runs this file as a script in a separate process before it starts Ray. Ray's
processes end with the driver, except for two agents and for workers that are just starting, which
keep trying to reach the server that was killed with the driver. Standard input ends when the
driver does.
"""

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_LEFT = (
    b"ray::DashboardAgent", b"ray::RuntimeEnvAgent", b"dashboard/agent.py", b"agent/main.py",
    b"workers/setup_worker.py", b"workers/default_worker.py",
)  # fmt: skip
"""Process titles, or endings of program names before a title is set, of Ray's processes."""
_SCANS = 5
_SCAN_S = 1.0


def main(driver: str) -> None:
    """Wait for the end of standard input, then kill the driver's remaining Ray processes."""
    sys.stdin.read()
    # Scan several times, because workers that were just starting appear later.
    for _ in range(_SCANS):
        for pid in _find(driver):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_SCAN_S)


def _find(driver: str) -> Iterator[int]:
    """Find Ray processes whose command contains the driver's session, or that have its logs open.

    Titles overwrite commands, and a worker opens its logs only after a while.
    """
    session = re.compile(rb"session_[0-9_-]+_%s\b" % driver.encode())
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            command = (folder / "cmdline").read_bytes()
            if not any(word.endswith(_LEFT) for word in command.split(b"\0")[:3]):
                continue
            opened = (os.readlink(file) for file in (folder / "fd").iterdir())
            if session.search(command) or any(f"_{driver}/logs/" in file for file in opened):
                yield int(folder.name)


if __name__ == "__main__":
    main(sys.argv[1])
