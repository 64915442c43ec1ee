"""Handles Ctrl-C, SIGTERM and SIGHUP: acknowledges them at once, although stopping takes time."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import FrameType

from agentrl.errors import AgentRLError, describe_error

log = logging.getLogger(__name__)

_WORDS: dict[int, str] = {
    signal.SIGTERM: "terminated",
    signal.SIGINT: "interrupted",
    signal.SIGHUP: "the terminal is gone",
}


class Stopping:
    """Cancels a task on a signal, but lets a block that should not be interrupted finish first.

    Args:
        task: task of the running event loop; None ignores signals.
        grace_s: seconds for which a block may continue after the signal.
    """

    def __init__(self, task: asyncio.Task[object] | None = None, grace_s: float = 0.0) -> None:
        self.signal: int | None = None
        """Number of the received signal, if any."""
        self._task, self._grace_s = task, grace_s
        self._loop = None if task is None else task.get_loop()
        self._completing = self._cancelled = self._interrupting = False
        self.is_block_incomplete = False
        """True if a block failed or took longer than allowed."""

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal; a second signal ends the process immediately."""
        if self.signal is not None:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.signal = number
        what = _WORDS.get(number, signal.Signals(number).name)
        log.warning("%s: stopping, which may take a while (a second signal kills the job)", what)
        assert self._loop is not None, "without a task, there is no handler"
        # A handler may run between any two instructions, so do the rest in the event loop.
        self._loop.call_soon_threadsafe(self._begin)
        if self._interrupting:
            self._cancelled = True
            raise KeyboardInterrupt

    def _begin(self) -> None:
        if self._completing:
            assert self._loop is not None
            self._loop.call_later(self._grace_s, self._cancel)
        else:
            self._cancel()

    def _cancel(self) -> None:
        if not self._cancelled and self._task is not None:
            self._cancelled = True
            if self._completing:
                what = "the update in progress did not end within run.grace_s=%g s and is not saved"
                log.warning(what, self._grace_s)
            self._task.cancel()

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Let a signal interrupt a block that never awaits and would otherwise run to completion.

        Raises:
            asyncio.CancelledError: a signal has arrived.
        """
        self._interrupting = True
        try:
            if self.signal is not None:
                self._cancelled = True
                raise asyncio.CancelledError
            yield
        except KeyboardInterrupt:
            raise asyncio.CancelledError from None
        finally:
            self._interrupting = False

    @asynccontextmanager
    async def completed_first(self) -> AsyncIterator[None]:
        """Let a signal stop the task only after the block, unless the block takes too long.

        Raises:
            asyncio.CancelledError: a signal has arrived.
        """
        self._completing = True
        try:
            yield
        except BaseException:
            self.is_block_incomplete = True
            raise
        finally:
            self._completing = False
        if self.signal is not None:
            self._cancel()
            # The cancellation takes effect at the next await.
            await asyncio.sleep(0)


@contextmanager
def acknowledge_stop_signals(
    stop_signal: str | None = None, grace_s: float = 0.0
) -> Iterator[Stopping]:
    """Log Ctrl-C, SIGTERM and SIGHUP immediately, although the work takes a while to stop.

    Enter this context in the event loop's main task. A signal cancels the task, so that everything
    is closed in order.

    Args:
        stop_signal: name of an additional signal that is handled like SIGTERM (`run.stop_signal`).
        grace_s: see `Stopping`.

    Raises:
        KeyboardInterrupt: after Ctrl-C.
        SystemExit: after another signal, with status 128 + its number; 143 after SIGTERM.
    """
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread can handle signals.
        yield Stopping()
        return
    stopping = Stopping(asyncio.current_task(), grace_s)
    numbers = [signal.SIGTERM]
    if stop_signal is not None:
        numbers.append(signal.Signals[stop_signal])
    # Under nohup, SIGHUP is ignored and must remain so.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        numbers.append(signal.SIGHUP)
    # Likewise, SIGINT is ignored in processes that a script starts with `&`.
    if callable(signal.getsignal(signal.SIGINT)):
        numbers.append(signal.SIGINT)
    with _handled_by(stopping, numbers):
        yield stopping


@contextmanager
def _handled_by(stopping: Stopping, numbers: Sequence[signal.Signals]) -> Iterator[None]:
    previous = {number: signal.signal(number, stopping.on_signal) for number in numbers}
    try:
        yield
        # It is too late to cancel anything, but no other job may start.
        if stopping.signal is not None:
            raise asyncio.CancelledError
    except (asyncio.CancelledError, Exception) as error:
        if stopping.signal is None:
            raise
        # Such errors can occur if the signal has also ended other processes of the group.
        if isinstance(error, Exception):
            is_bug = not isinstance(error, AgentRLError | OSError)
            what = error if isinstance(error, AgentRLError) else describe_error(error)
            log.error("while stopping: %s", what, exc_info=error if is_bug else None)
        if stopping.signal == signal.SIGINT:
            raise KeyboardInterrupt from None
        raise SystemExit(128 + stopping.signal) from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
