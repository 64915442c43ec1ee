"""Record the host, time and code of each start of a run in `starts.jsonl`."""

import platform
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from agentrl._version import __version__
from agentrl.errors import ConfigError
from agentrl.runs.file_reading import is_number
from agentrl.runs.jsonl import JsonlTail, append_durably
from agentrl.text.formatting import printable

STARTS_FILE = "starts.jsonl"
_GIT = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
_GIT_S = 5.0
"""Seconds to wait for git, which takes minutes in a huge repository on a slow disk."""
_DIRTY = "-dirty"
_LONGEST = 120
"""Maximum length of a value in characters; real values have at most 41."""


@dataclass(slots=True, kw_only=True, frozen=True)
class RunStart:
    """One start of a run."""

    time: float
    """Time of the start, in seconds since 1970."""
    host: str
    """The machine's name."""
    commit: str | None
    """Commit of the working folder's git repository; None outside a repository."""
    changed: bool
    """Whether tracked files differed from the commit."""
    version: str
    """Version of agentrl."""

    @property
    def code(self) -> str:
        """The short commit, such as `1f0c2ab (changed)`; empty without one."""
        if self.commit is None:
            return ""
        return f"{self.commit[:7]} (changed)" if self.changed else self.commit[:7]


def record_start(run: Path) -> None:
    """Record that this process is starting or resuming a run now."""
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
    """Return the working folder's commit, with `-dirty` if files differ, or ''."""
    try:
        found = subprocess.run(
            _GIT, capture_output=True, text=True, timeout=_GIT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def last_start(run: Path) -> RunStart | None:
    """Return the latest start of a run, or None if no start is recorded."""
    file = run / STARTS_FILE
    try:
        entries = [*JsonlTail(file).new()] if file.is_file() else []
    except ConfigError:
        return None
    if not entries:
        return None
    # The run may be untrusted, so shorten strings and remove control characters.
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
