"""Loggers whose failures do not end the job."""

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, TypeVar

from agentrl.config import LoggerConfig
from agentrl.errors import ConfigError, describe_error, must_propagate
from agentrl.training.monitoring.logger import Logger, open_logger
from agentrl.training.monitoring.progress import PlannedWork

log = logging.getLogger(__name__)

T = TypeVar("T")

_DEADLINE_S = 120.0
"""Time limit of one call of a user's logger, in seconds."""
_REQUIRED = ("console", "file")
"""Built-in loggers whose failure ends the job, because if they cannot write (for example on a full
disk), neither can the job."""


def open_guarded(
    cls: type[Logger], config: LoggerConfig, run: Path, amounts: PlannedWork
) -> Logger:
    """Open a logger that may fail later without ending the job.

    Raises:
        ConfigError: the logger cannot be opened.
    """
    if config.name in _REQUIRED:
        return open_logger(cls, config, run, amounts)
    # Built-in loggers use libraries with their own deadlines, which may need the main thread.
    thread = None if cls.__module__.startswith("agentrl.") else _CallThread(config.name)
    return GuardedLogger(config.name, lambda: open_logger(cls, config, run, amounts), thread)


class GuardedLogger(Logger):
    """Passes all calls to a logger until one fails or hangs; then the job continues without it.

    Args:
        name: name in `logging`, for messages.
        make: constructs the logger.
        thread: thread that constructs and calls the logger; None for the caller's thread.

    Raises:
        ConfigError: `make` raised it or did not return in time.
    """

    def __init__(
        self, name: str, make: Callable[[], Logger], thread: "_CallThread | None" = None
    ) -> None:
        self._name, self._thread = name, thread
        self._has_failed = False
        try:
            self._logger = self._run(make)
        except _Late as late:
            raise ConfigError(f"logging: {name} cannot be opened: {late}") from None

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """See `Logger`; the logger gets a copy of the metrics."""
        copy = dict(metrics)
        self._call("log", lambda: self._logger.log(stage, step, copy))

    def stage(self, name: str) -> None:
        """See Logger."""
        self._call("stage", lambda: self._logger.stage(name))

    def progress(self, done: float, total: float, note: str) -> None:
        """See Logger."""
        self._call("progress", lambda: self._logger.progress(done, total, note))

    def note(self, text: str) -> None:
        """See Logger."""
        self._call("note", lambda: self._logger.note(text))

    def rewind(self, step: int) -> None:
        """See Logger."""
        self._call("rewind", lambda: self._logger.rewind(step))

    def finish(self, results: Mapping[str, Any]) -> None:
        """See Logger."""
        self._call("finish", lambda: self._logger.finish(results))

    def close(self) -> None:
        """See Logger."""
        self._call("close", lambda: self._logger.close())
        if self._thread is not None:
            self._thread.close()

    def _call(self, name: str, function: Callable[[], None]) -> None:
        if self._has_failed:
            return
        try:
            self._run(function)
        except BaseException as error:
            # Errors that end the process, such as Ctrl-C, occur only in the main thread.
            if self._thread is None and must_propagate(error):
                raise
            self._has_failed = True
            reason = str(error) if isinstance(error, _Late) else describe_error(error)
            log.warning(
                "logging: %s failed in %s(): %s. The job continues without this logger; a resumed "
                "job opens it again",
                self._name,
                name,
                reason,
            )

    def _run(self, function: Callable[[], T]) -> T:
        return function() if self._thread is None else self._thread.run(function)


class _Late(Exception):
    """Raised if a call did not return within the deadline."""


class _CallThread:
    """Runs calls one after the other in the same daemon thread, each within the deadline.

    Some objects, such as sqlite3 connections, are bound to a thread.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=f"logger {name}", daemon=True).start()

    def run(self, function: Callable[[], T]) -> T:
        """Return what `function` returns, or raise what it raises.

        Raises:
            _Late: the call takes longer than the deadline; it is not interrupted.
        """
        answer: Future[T] = Future()

        def call() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:
                answer.set_exception(error)

        self._calls.put(call)
        if not wait([answer], _DEADLINE_S).done:
            raise _Late(f"it did not return within {_DEADLINE_S:g} s")
        return answer.result()

    def close(self) -> None:
        """End the thread after the running call, without waiting for the call."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
