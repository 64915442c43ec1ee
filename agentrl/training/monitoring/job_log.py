"""The log of a job: what it says on the console, in the run's folder."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console

from agentrl.training.monitoring.loggers.console import ConsoleDisplay
from agentrl.training.monitoring.metrics_file import JOB_LOG
from agentrl.training.monitoring.progress import PlannedWork

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_WIDTH = 120


class LogFileDisplay(ConsoleDisplay):
    """Appends the plain lines of the console to the log of the job.

    Args:
        run: the run's folder.
        amounts: the planned work of the job.
    """

    def __init__(self, run: Path, amounts: PlannedWork) -> None:
        (run / JOB_LOG).parent.mkdir(parents=True, exist_ok=True)
        self._file = (run / JOB_LOG).open("a", encoding="utf-8")
        console = Console(file=self._file, width=_WIDTH, force_jupyter=False)
        super().__init__(run, amounts, console)

    def close(self) -> None:
        """Stop, and close the file."""
        with self._file:
            super().close()


@contextmanager
def logged_to(file: Path) -> Iterator[None]:
    """Append to a file what agentrl logs; what is shown elsewhere is still shown there."""
    logger = logging.getLogger("agentrl")
    file.parent.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [_LogFile(file)]
    if not logger.hasHandlers() and logging.lastResort is not None:
        handlers.append(logging.lastResort)  # which Python uses as long as there is no handler
    for handler in handlers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
        handlers[0].close()


class _LogFile(logging.FileHandler):
    """Loses records rather than fail, as on a full disk."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, encoding="utf-8", delay=True)
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; the run's folder may be gone."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore the error."""
