"""Messages between a reward process and its parent."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl import errors, user_code
from agentrl.data.reward_inputs import MissingInfo
from agentrl.errors import INSTALLED, AgentRLError, RewardError
from agentrl.rollout.rewards.reward_calls import RewardSpec

FIELDS = 3
"""Number of header fields in the memory shared with the parent: when the current call began
(nanoseconds of the monotonic clock, 0 between calls), its function's index (-1 while only
asynchronous functions run), and its number of jobs. The ids of these jobs follow."""
MAX_IDS = 1021
STATUS_BYTES = 8 * (FIELDS + MAX_IDS)
Result = tuple[float, ...] | dict[str, float]
"""One value per turn; or a batch function's row, empty if the function does not apply."""
Failure = tuple[str, str, tuple[str, str] | None]
"""Class name of an error in `agentrl.errors`, its message, and arguments of a `MissingInfo`."""

is_loading = False
"""Whether this is a reward process that is importing its functions."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ProcessSpec:
    """A reward process's functions, and the settings to load them."""

    rewards: Sequence[RewardSpec]
    path: Sequence[str]
    """The parent's `sys.path`."""
    roots: Sequence[Path]
    """See `user_code.look_below`."""
    log_level: int
    deadline_s: float
    """Time limit of an asynchronous call, in seconds; the parent enforces it for other calls."""
    deadline: str
    """The deadline as text for messages, including the setting's name."""
    end: str
    """Token that ends a reply, for functions that receive text in the model's chat format."""
    retries: bool
    """Whether to retry a failed batch call for each episode alone."""


def failure_of(error: BaseException) -> Failure:
    """Return an error as plain values, since user exceptions may not be picklable."""
    ours = (kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
    of_text = (kind.__name__ for kind in ours if "__init__" not in vars(kind))
    kind, cause = next(of_text, RewardError.__name__), error.__cause__
    text = str(error)
    missing = (cause.env_id, cause.key) if isinstance(cause, MissingInfo) else None
    return kind, text, missing


def error_of(failure: Failure) -> AgentRLError:
    """Return the error described by the output of `failure_of`."""
    kind, text, missing = failure
    error: AgentRLError = getattr(errors, kind)(text)
    if missing is not None:
        error.__cause__ = MissingInfo(*missing)
    return error


def users_modules() -> dict[str, str]:
    """Return the files of imported modules, except installed packages and agentrl."""
    return {
        name: file
        for name, file in user_code.module_files().items()
        if not file.startswith(INSTALLED) and name.partition(".")[0] != "agentrl"
    }


class LogForwarder(logging.Handler):
    """Log handler that sends records to the parent, whose handlers show them."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        super().__init__()
        self._send = send
        self._pid = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record as text."""
        # Only this process may use the connection, not processes that functions fork.
        if os.getpid() != self._pid:
            logging.lastResort.handle(record)  # type: ignore[union-attr]
            return
        text = self.format(record)
        fields: Mapping[str, Any] = {
            "name": record.name, "levelno": record.levelno, "levelname": record.levelname,
            "msg": text, "created": record.created, "pathname": record.pathname,
            "lineno": record.lineno,
        }  # fmt: skip
        try:
            self._send(("log", fields))
        # The parent may have ended.
        except (OSError, ValueError):
            self.handleError(record)


def show_log(fields: dict[str, Any]) -> None:
    """Log a record that a `LogForwarder` sent."""
    record = logging.makeLogRecord(fields)
    logging.getLogger(record.name).handle(record)
