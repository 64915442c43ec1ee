"""Host, time and code of each start of a run, as lines of `starts.jsonl`."""

import platform
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from agentrl._version import __version__
from agentrl.errors import ConfigError
from agentrl.runs.jsonl import JsonlTail, append_durably
from agentrl.runs.run_files import is_number
from agentrl.text import printable

STARTS_FILE = "starts.jsonl"
_GIT = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
_GIT_S = 5.0
"""How long git may take; in a huge repository on a slow disk it takes minutes."""
_DIRTY = "-dirty"
_LONGEST = 120
"""Characters of a value; real ones have at most 41."""


@dataclass(slots=True, kw_only=True, frozen=True)
class RunStart:
    """One start of a run."""

    time: float
    """Seconds since 1970."""
    host: str
    """Name of the machine."""
    commit: str | None
    """The commit of the working folder's git repository; None if it is in none."""
    changed: bool
    """Whether files under version control differed from that commit."""
    version: str
    """The version of agentrl."""

    @property
    def code(self) -> str:
        """The short commit, such as `1f0c2ab (changed)`; empty without one."""
        if self.commit is None:
            return ""
        return f"{self.commit[:7]} (changed)" if self.changed else self.commit[:7]


def record_start(run: Path) -> None:
    """Record that a run is started or resumed now, by this process."""
    described = _described_commit()
    commit = described.removesuffix(_DIRTY)
    start = RunStart(
        time=time.time(),
        host=platform.node(),
        commit=commit or None,
        changed=described.endswith(_DIRTY),
        version=__version__,
    )
    append_durably(run / STARTS_FILE, [asdict(start)])


def _described_commit() -> str:
    """Return the working folder's commit, with `-dirty` if files differ; empty without one."""
    try:
        found = subprocess.run(
            _GIT, capture_output=True, text=True, timeout=_GIT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def last_start(run: Path) -> RunStart | None:
    """Return the latest start of a run; None if none is recorded."""
    file = run / STARTS_FILE
    try:
        entries = [*JsonlTail(file).new()] if file.is_file() else []
    except ConfigError:
        return None
    if not entries:
        return None
    # The run may be a stranger's: texts are shortened, and shown without control characters.
    last = entries[-1]
    texts = {
        name: printable(value[:_LONGEST])
        for name in ("host", "commit", "version")
        if isinstance(value := last.get(name), str)
    }
    return RunStart(
        time=last["time"] if is_number(last.get("time")) else 0.0,
        host=texts.get("host", ""),
        commit=texts.get("commit"),
        changed=last.get("changed") is True,
        version=texts.get("version", ""),
    )
