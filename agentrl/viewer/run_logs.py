"""The logs of a run."""

from typing import Any

from agentrl.errors import ConfigError
from agentrl.files import open_regular
from agentrl.replay import Run
from agentrl.text.formatting import quoted

_TAIL = 128 << 10
"""Number of bytes to show at the end of a log."""


def log_files(run: Run) -> list[dict[str, Any]]:
    """Return the `name` and `bytes` of logs of a run's engines, workers and phones.

    Includes only regular files with a printable name, without links out of the run's folder.
    """
    own = run.path.resolve()
    files = [
        file
        for file in sorted(run.path.glob("logs/[!.]*.log"))
        if file.name.isprintable() and file.is_file() and file.resolve().is_relative_to(own)
    ]
    return [{"name": file.name, "bytes": file.stat().st_size} for file in files]


def log_tail(run: Run, name: str) -> str:
    """Return the end of a log.

    Raises:
        ConfigError: the log does not exist.
    """
    if name not in {found["name"] for found in log_files(run)}:
        raise ConfigError(f"{run.name} has no log {quoted(name)}")
    with open(run.path / "logs" / name, "rb", opener=open_regular) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL))
        text = file.read().decode(errors="replace")
    # The first line is incomplete, so leave it out.
    return text if size <= _TAIL else text.partition("\n")[2]
