"""Runs coroutines from synchronous code, with deadlines, and callbacks from threads.

Synchronous code includes notebook cells, which already run in an event loop.
"""

import asyncio
import contextvars
import logging
import signal
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from agentrl.errors import DeviceError, in_event_loop

log = logging.getLogger(__name__)

T = TypeVar("T")

_deadline: contextvars.ContextVar[asyncio.Timeout | None] = contextvars.ContextVar(
    "deadline", default=None
)


@asynccontextmanager
async def own_deadline(seconds: float) -> AsyncIterator[None]:
    """Limit the time of a block, not counting time inside `off_the_clock`.

    Raises:
        TimeoutError: the block took longer than `seconds`.
    """
    async with asyncio.timeout(seconds) as timeout:
        token = _deadline.set(timeout)
        try:
            yield
        finally:
            _deadline.reset(token)


@contextmanager
def off_the_clock() -> Iterator[None]:
    """Pause the clock of an enclosing `own_deadline`, if any, while this task waits for another."""
    timeout = _deadline.get()
    end = None if timeout is None else timeout.when()
    if timeout is None or end is None or timeout.expired():
        yield
        return
    loop = asyncio.get_running_loop()
    left = end - loop.time()
    timeout.reschedule(None)
    try:
        yield
    finally:
        timeout.reschedule(loop.time() + left)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to completion and return its result.

    If an event loop is already running, as in a notebook cell, where `asyncio.run` fails, the
    coroutine runs in a separate thread with its own loop. Ctrl-C cancels the coroutine and waits
    until it has cleaned up.
    """
    if not in_event_loop():
        return asyncio.run(coroutine)
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    interruptible = threading.Event()

    async def work() -> T:
        interruptible.wait()  # until the Ctrl-C handler is installed
        task = asyncio.current_task()
        assert task is not None
        started.set_result((asyncio.get_running_loop(), task))
        return await coroutine

    with ThreadPoolExecutor(1, thread_name_prefix="agentrl-loop") as pool:
        result = pool.submit(contextvars.copy_context().run, asyncio.run, work())
        try:
            with _plain_interrupts():
                interruptible.set()
                return result.result()
        except KeyboardInterrupt:
            interruptible.set()
            loop, task = started.result()
            with suppress(RuntimeError):  # the loop has already ended
                loop.call_soon_threadsafe(task.cancel)
            raise


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise immediately; `asyncio.run` would only cancel a task of the blocked loop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


class BackgroundTasks:
    """Runs background tasks, and logs exceptions that would otherwise go unnoticed."""

    def __init__(self) -> None:
        """Create an empty set of tasks."""
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
            log.error("a background task failed", exc_info=error)


class Inbox:
    """Delivers callbacks from threads to an event loop in batches.

    Waking a loop is a system call that serializes the threads of a process. If hundreds of threads
    finish at about the same time, one of them wakes the loop, which then runs all their callbacks.
    """

    def __init__(self) -> None:
        self._callbacks: deque[Callable[[], None]] = deque()
        self._is_waking = False

    def post(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        """Schedule `callback` on the loop. Thread-safe."""
        self._callbacks.append(callback)
        if not self._is_waking and not loop.is_closed():
            self._is_waking = True
            loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        # Reset this first, so that a callback posted too late for this run wakes the loop again.
        self._is_waking = False
        while self._callbacks:
            self._callbacks.popleft()()


_inboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Inbox] = WeakKeyDictionary()


def post(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Schedule a function on an event loop. Thread-safe."""
    inbox_of(loop).post(loop, callback)


def inbox_of(loop: asyncio.AbstractEventLoop) -> Inbox:
    """Return the inbox of an event loop."""
    return _inboxes.setdefault(loop, Inbox())
