"""The error that ended a job, and what the job logged, in the run's folder."""

import json
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from agentrl.errors import (
    AgentRLError,
    ClusterError,
    EnvCrashed,
    EnvError,
    EnvLost,
    LearnerLost,
    RewardError,
    WorldError,
    message_of,
)
from agentrl.files import open_regular, write_durably
from agentrl.text import printable
from agentrl.training.monitoring.job_log import logged_to
from agentrl.training.monitoring.metrics_file import JOB_LOG

ERROR_FILE = "error.json"
_LARGEST = 1 << 20
"""Bytes of an error's file; real ones have a few thousand."""
_LONGEST_TRACEBACK = 20_000


@dataclass(slots=True, kw_only=True, frozen=True)
class JobFailure:
    """Why a job failed."""

    type: str
    """The class of the error."""
    message: str
    traceback: str
    may_pass: bool
    """Whether the same job may succeed if it is resumed as it is."""
    time: float
    """Seconds since 1970."""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


def may_pass(error: BaseException) -> bool:
    """Whether a job that ended with this error may succeed if it is resumed as it is.

    It may after an interruption, and after a failure of machines, phones or disks; an error in the
    configuration or in code would recur.
    """
    if isinstance(error, RewardError | EnvError):
        return isinstance(error, EnvCrashed | EnvLost)
    if isinstance(error, WorldError | LearnerLost | ClusterError | OSError):
        return True
    return not isinstance(error, Exception)  # Ctrl-C or a signal


@contextmanager
def recorded_failure(run: Path) -> Iterator[None]:
    """Record the error that ends a job, unless it is an interruption, in the run's folder.

    The job's log has what is logged meanwhile. The error of an earlier attempt is removed.
    """
    (run / ERROR_FILE).unlink(missing_ok=True)
    with logged_to(run / JOB_LOG):
        try:
            yield
        except Exception as error:
            if run.is_dir():
                _write(run, error)
            raise


def _write(run: Path, error: Exception) -> None:
    lines = "".join(traceback.format_exception(error))
    failure = JobFailure(
        type=type(error).__name__,
        message=message_of(error),
        traceback=lines[-_LONGEST_TRACEBACK:],
        may_pass=may_pass(error),
        time=time.time(),
    )
    try:
        write_durably(run / ERROR_FILE, json.dumps(asdict(failure), indent=1) + "\n")
        with (run / JOB_LOG).open("a", encoding="utf-8") as log:
            log.write(str(failure) + "\n" if isinstance(error, AgentRLError) else lines)
    except OSError:  # such as a full disk, which may be the error itself
        return


def read_failure(run: Path) -> JobFailure | None:
    """The error that ended a run's last job; None if none did, or its file is damaged."""
    try:
        with open(run / ERROR_FILE, "rb", opener=open_regular) as file:
            found = json.loads(file.read(_LARGEST))
        return JobFailure(
            type=printable(str(found["type"])),
            message=printable(str(found["message"])),
            traceback=str(found["traceback"]),
            may_pass=found["may_pass"] is True,
            time=float(found["time"]),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
