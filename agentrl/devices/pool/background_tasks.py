"""Background tasks of a pool."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from agentrl.errors import DeviceError

log = logging.getLogger(__name__)

T = TypeVar("T")


class BackgroundTasks:
    """Runs background tasks, and logs exceptions that would otherwise go unnoticed."""

    def __init__(self) -> None:
        """No task yet."""
        # An event loop keeps only weak references to its tasks.
        self._running: set[asyncio.Future[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Start a task on the running event loop."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, DeviceError):
            log.error("a background task of the pool failed", exc_info=error)
