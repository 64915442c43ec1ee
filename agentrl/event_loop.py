"""Run coroutines to completion from ordinary code, also inside a notebook's event loop."""

import asyncio
import contextvars
import signal
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to completion and return its result.

    Inside a running event loop, such as that of a notebook cell, it runs in a thread with a loop
    of its own, as `asyncio.run` would refuse to. Ctrl-C cancels the coroutine and waits until it
    has cleaned up.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
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
