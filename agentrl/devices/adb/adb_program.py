"""Finds the adb program."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path
from shutil import which

from agentrl.errors import ConfigError

_WIRELESS = 31
"""First version of platform-tools that finds phones with wireless debugging by their names."""


def find_adb(configured: str | None = None) -> str:
    """The adb program: the configured one, else the one in PATH, else the one bundled in adbutils.

    If the one in PATH is too old for wireless debugging, the bundled one is preferred.

    Raises:
        ConfigError: there is none.
    """
    if configured is not None:
        if not os.access(configured, os.X_OK):
            raise ConfigError(f"adb: {configured} is not an executable program")
        return configured
    found = which("adb")
    if found and not (0 < _adb_version(found) < _WIRELESS):
        return found
    import adbutils.binaries

    bundled = str(Path(adbutils.binaries.__file__).parent / "adb")
    is_bundled = os.access(bundled, os.X_OK)
    if found and not (is_bundled and _adb_version(bundled) >= _WIRELESS):
        return found
    if not is_bundled:
        raise ConfigError("adb was not found; install Android's platform-tools")
    return bundled


@cache
def _adb_version(program: str) -> int:
    """The platform-tools that a program belongs to, such as 36; 0 if it does not say."""
    try:
        printed = subprocess.run([program, "version"], capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(rb"^Version (\d+)\.", printed.stdout, re.MULTILINE)
    return int(version[1]) if version else 0
