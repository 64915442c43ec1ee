"""Record a job's log and the error that ended it in the run's folder."""

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
from agentrl.runs.file_reading import read_object
from agentrl.text.formatting import printable

ERROR_FILE = "error.json"
JOB_LOG = "logs/job.log"
"""File with the job's console output."""
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LONGEST_TRACEBACK = 20_000


@dataclass(slots=True, kw_only=True, frozen=True)
class JobFailure:
    """The reason why a job failed."""

    type: str
    """The error's class."""
    message: str
    traceback: str
    may_pass: bool
    """Whether the job may succeed if resumed unchanged."""
    time: float
    """Time of the failure, in seconds since 1970."""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


def may_pass(error: BaseException) -> bool:
    """Return whether a job that ended with this error may succeed if resumed unchanged.

    It may succeed after an interruption or a failure of machines, phones or disks; an error in the
    configuration or in code would recur.
    """
    if isinstance(error, RewardError | EnvError):
        return isinstance(error, EnvCrashed | EnvLost)
    if isinstance(error, WorldError | LearnerLost | ClusterError | OSError):
        return True
    # Ctrl-C and signals raise a `BaseException` that is not an `Exception`.
    return not isinstance(error, Exception)


@contextmanager
def recorded_failure(run: Path) -> Iterator[None]:
    """Record the error that ends a job in the run's folder, unless it is an interruption.

    Messages logged in the block also go to the job's log. An earlier attempt's error is removed.
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
    """Append agentrl's log to a file, in addition to showing it elsewhere."""
    logger = logging.getLogger("agentrl")
    file.parent.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [_LogFile(file)]
    # Python stops printing warnings to stderr once any handler exists.
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
    """Log file that drops records, for example on a full disk, rather than fail the job."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, encoding="utf-8", delay=True)
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        # The file is opened at the first record; by then the run's folder may be gone.
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
    # The disk may be full (perhaps that is the error), or an empty run folder already removed.
    with suppress(OSError):
        write_json(run / ERROR_FILE, asdict(failure))
        with (run / JOB_LOG).open("a", encoding="utf-8") as log:
            log.write(str(failure) + "\n" if isinstance(error, AgentRLError) else lines)


def read_failure(run: Path) -> JobFailure | None:
    """Return the error that ended a run's last job, or None if unknown or damaged."""
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
