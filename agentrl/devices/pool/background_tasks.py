"""Tasks of a pool that nobody waits for."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from agentrl.errors import DeviceError

log = logging.getLogger(__name__)

T = TypeVar("T")


class Tasks:
    """Runs tasks to their end, and tells of a bug in one that nobody would see otherwise."""

    def __init__(self) -> None:
        """None runs."""
        # An event loop alone does not keep its tasks alive.
        self._running: set[asyncio.Future[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Start one on the running event loop."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, DeviceError):
            log.error("a pool's own task failed", exc_info=error)
