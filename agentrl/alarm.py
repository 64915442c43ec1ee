"""Interrupt foreign code that does not end, such as the import of a user's file."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def alarm(
    after_s: float, interrupt: Callable[[FrameType | None], None], every_s: float = 0.0
) -> Iterator[None]:
    """Call a function in the middle of the block if that takes too long.

    Only the main thread can be interrupted, and by one alarm at a time: in another thread, or while
    the process has an alarm already, the block just runs.

    Args:
        after_s: from the start of the block to the call.
        interrupt: gets the frame that runs; what it raises is raised there, and ends blocking calls
            of Python. Code in C runs on.
        every_s: from one call to the next; 0 calls once.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return
    previous = signal.signal(signal.SIGALRM, lambda number, frame: interrupt(frame))
    signal.setitimer(signal.ITIMER_REAL, after_s, every_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous or signal.SIG_DFL)  # None: not set by Python
