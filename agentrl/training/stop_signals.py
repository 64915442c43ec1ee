"""Ctrl-C and SIGTERM during a run: acknowledged at once, though stopping takes a while."""

import asyncio
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

log = logging.getLogger(__name__)


@contextmanager
def acknowledge_stop_signals() -> Iterator[None]:
    """Log Ctrl-C and SIGTERM at once: episodes and updates in progress take a while to stop.

    Enter it in the main task of the event loop. SIGTERM cancels that task, as Ctrl-C does under
    `asyncio.run`, so that everything is closed in order.

    Raises:
        SystemExit: with status 143, after SIGTERM.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    with _acknowledge_interrupts(), _cancel_on_sigterm():
        yield


@contextmanager
def _acknowledge_interrupts() -> Iterator[None]:
    previous = signal.getsignal(signal.SIGINT)
    if not callable(previous):
        yield
        return
    announced = False

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal announced
        if not announced:
            announced = True
            log.warning("interrupted: stopping, which may take a while")
        previous(number, frame)

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def _cancel_on_sigterm() -> Iterator[None]:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "it runs in a task"
    terminated = False

    def on_terminate(number: int, frame: FrameType | None) -> None:
        nonlocal terminated
        if not terminated:
            terminated = True
            log.warning("terminated: stopping, which may take a while")
            loop.call_soon_threadsafe(task.cancel)

    previous = signal.signal(signal.SIGTERM, on_terminate)
    try:
        yield
    except asyncio.CancelledError:
        if terminated:
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)
