"""The error that ended a job, and what the job logged, in the run's folder."""

import logging
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
from agentrl.files import write_json
from agentrl.runs.run_files import read_object
from agentrl.text import printable

ERROR_FILE = "error.json"
JOB_LOG = "logs/job.log"
"""The file with a job's console output."""
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
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
    # Ctrl-C and signals are no `Exception`.
    return not isinstance(error, Exception)


@contextmanager
def recorded_failure(run: Path) -> Iterator[None]:
    """Record the error that ends a job, unless it is an interruption, in the run's folder.

    What is logged meanwhile goes into the job's log. The error of an earlier attempt is removed.
    """
    (run / ERROR_FILE).unlink(missing_ok=True)
    with _logged_to(run / JOB_LOG):
        try:
            yield
        except Exception as error:
            _write(run, error)
            raise


@contextmanager
def _logged_to(file: Path) -> Iterator[None]:
    """Append to a file what agentrl logs; what is shown elsewhere is still shown there."""
    logger = logging.getLogger("agentrl")
    file.parent.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [_LogFile(file)]
    # Python prints warnings to stderr only as long as there is no handler at all.
    if not logger.hasHandlers() and logging.lastResort is not None:
        handlers.append(logging.lastResort)
    for handler in handlers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
        handlers[0].close()


class _LogFile(logging.FileHandler):
    """Log file that loses records, such as on a full disk, rather than fail the job."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, encoding="utf-8", delay=True)
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        # The file is opened at the first record, when the run's folder may be gone.
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore the error."""


def _write(run: Path, error: Exception) -> None:
    lines = "".join(traceback.format_exception(error))
    failure = JobFailure(
        type=type(error).__name__,
        message=message_of(error),
        traceback=lines[-_LONGEST_TRACEBACK:],
        may_pass=may_pass(error),
        time=time.time(),
    )
    # The disk may be full, which may be the error itself, or the folder of an empty run be gone.
    with suppress(OSError):
        write_json(run / ERROR_FILE, asdict(failure))
        with (run / JOB_LOG).open("a", encoding="utf-8") as log:
            log.write(str(failure) + "\n" if isinstance(error, AgentRLError) else lines)


def read_failure(run: Path) -> JobFailure | None:
    """Return the error that ended a run's last job; None if none did, or its file is damaged."""
    found = read_object(run / ERROR_FILE)
    try:
        return JobFailure(
            type=printable(str(found["type"])),
            message=printable(str(found["message"])),
            traceback=str(found["traceback"]),
            may_pass=found["may_pass"] is True,
            time=float(found["time"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
