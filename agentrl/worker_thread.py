"""A thread that executes calls one at a time."""

import asyncio
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from agentrl.event_loop import inbox_of

T = TypeVar("T")


class Worker:
    """Executes calls one at a time in a daemon thread.

    Unlike an executor's thread, a hung daemon thread does not prevent the process from exiting.

    Args:
        name: name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function and return its result, or raise its exception.

        Canceling this coroutine does not stop the function; its result is dropped.
        """
        loop = asyncio.get_running_loop()
        inbox = inbox_of(loop)
        answer: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)  # type: ignore[arg-type]

        def execute() -> None:
            result, error = None, None
            try:
                result = function(*arguments)
            except BaseException as raised:
                error = raised
            inbox.post(loop, partial(settle, result, error))

        self._calls.put(execute)
        return await answer

    def close(self, last: Callable[[], None] | None = None) -> None:
        """Let the thread exit once the queued calls, then `last`, have run; return immediately."""
        if last is not None:
            self._calls.put(last)
        self._calls.put(None)

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end; return False if it does not end in time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
