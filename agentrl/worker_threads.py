"""Daemon threads for asyncio code to run blocking calls that may never return."""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class _Inbox:
    """Callbacks from threads to an event loop, delivered in batches.

    Waking a loop is a system call that serializes the threads of a process. If hundreds of threads
    finish at about the same time, one wakes the loop, which then runs the callbacks of all.
    """

    def __init__(self) -> None:
        self._callbacks: deque[Callable[[], None]] = deque()
        self._is_waking = False

    def post(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        """Have `callback` called in the loop; may be called by any thread."""
        self._callbacks.append(callback)
        if not self._is_waking and not loop.is_closed():
            self._is_waking = True
            loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        # Reset first, so that a callback posted too late for this run wakes the loop again.
        self._is_waking = False
        while self._callbacks:
            self._callbacks.popleft()()


_inboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Inbox] = WeakKeyDictionary()


def post(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Have an event loop call a function; may be called by any thread."""
    _inbox_of(loop).post(loop, callback)


def _inbox_of(loop: asyncio.AbstractEventLoop) -> _Inbox:
    return _inboxes.setdefault(loop, _Inbox())


class Worker:
    """Executes calls one after the other in a daemon thread.

    Unlike an executor's thread, one that hangs does not keep the process from exiting.

    Args:
        name: of the thread.
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
        inbox = _inbox_of(loop)
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
        """End the thread after the running call and then `last`; does not wait for it."""
        if last is not None:
            self._calls.put(last)
        self._calls.put(None)

    def join(self, seconds: float) -> bool:
        """Wait until the thread has ended; False if it has not in time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
