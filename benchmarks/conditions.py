"""Measurement conditions, which each benchmark prints above its tables."""

import os
import platform
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def conditions(*packages: str) -> str:
    """Describe the command, the machine, its load and package versions, one line each.

    Args:
        packages: names of the packages to include.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    versions = [f"Python {platform.python_version()}", *map(_version, packages)]
    return "\n".join(
        [
            f"command:  {shlex.join(['python', *sys.argv])}",
            f"machine:  {_cpu()}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB",
            f"load:     {load} (averages over 1, 5 and 15 minutes)",
            f"versions: {', '.join(versions)}",
        ]
    )


def _cpu() -> str:
    """Return the processor's model name, or its architecture if the name is unknown."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} not installed"
