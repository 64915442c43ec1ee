"""Kills the agents of a Ray whose driver has been killed, which would stay for a minute.

`ray_cluster` runs this file as a script of its own process, before it starts Ray. Ray's processes
end with the driver, except two agents: they try to report the death of their raylet to a server
that has been killed with it. Standard input ends with the driver.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_AGENTS = (b"ray::DashboardAgent", b"ray::RuntimeEnvAgent", b"dashboard/agent.py", b"agent/main.py")
"""Parts of their commands, after and before they set their titles."""
_SCANS = 5
_SCAN_S = 1.0


def main(driver: str) -> None:
    """Wait for the end of standard input, then kill the agents.

    Args:
        driver: the process id, which is part of the name of Ray's session.
    """
    sys.stdin.read()
    for _ in range(_SCANS):
        for pid in _find_agents(f"_{driver}/logs/"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_SCAN_S)


def _find_agents(logs: str) -> Iterator[int]:
    """The agents that have a file open below a folder; their titles overwrite other marks."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            command = (folder / "cmdline").read_bytes()
            if any(agent in command for agent in _AGENTS) and any(
                logs in os.readlink(file) for file in (folder / "fd").iterdir()
            ):
                yield int(folder.name)


if __name__ == "__main__":
    main(sys.argv[1])
