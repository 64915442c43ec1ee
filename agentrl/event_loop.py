"""Run coroutines from ordinary code, also inside a notebook's event loop, and in the background."""

import asyncio
import contextvars
import logging
import signal
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

from agentrl.errors import DeviceError, in_event_loop

log = logging.getLogger(__name__)

T = TypeVar("T")

_deadline: contextvars.ContextVar[asyncio.Timeout | None] = contextvars.ContextVar(
    "deadline", default=None
)


@asynccontextmanager
async def own_deadline(seconds: float) -> AsyncIterator[None]:
    """A timeout that does not count what `off_the_clock` surrounds.

    Raises:
        TimeoutError: after that many seconds.
    """
    async with asyncio.timeout(seconds) as timeout:
        token = _deadline.set(timeout)
        try:
            yield
        finally:
            _deadline.reset(token)


@contextmanager
def off_the_clock() -> Iterator[None]:
    """Stop the clock of the `own_deadline` around, if there is one: this task waits for others."""
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

    Inside a running event loop, such as that of a notebook cell, it runs in a thread with a loop
    of its own, as `asyncio.run` would refuse to. Ctrl-C cancels the coroutine and waits until it
    has cleaned up.
    """
    if not in_event_loop():
        return asyncio.run(coroutine)
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    interruptible = threading.Event()

    async def work() -> T:
        interruptible.wait()  # until Ctrl-C has its handler
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
            with suppress(RuntimeError):  # it has ended by now
                loop.call_soon_threadsafe(task.cancel)
            raise


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise at once; `asyncio.run` only cancels a task of the loop that is blocked."""
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
            log.error("a background task failed", exc_info=error)
