"""Threads of one's own for calls that block, and may never come back."""

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
    """What threads have to say to an event loop.

    To wake a loop is a system call, at which the threads of a process take turns: where hundreds
    are done at about the same time, one wakes it, and it hears what all of them have said.
    """

    def __init__(self) -> None:
        self._said: deque[Callable[[], None]] = deque()
        self._is_waking = False

    def say(self, loop: asyncio.AbstractEventLoop, words: Callable[[], None]) -> None:
        """Have `words` called in the loop, by any thread."""
        self._said.append(words)
        if not self._is_waking and not loop.is_closed():
            self._is_waking = True
            loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        # First: what is said from now on wakes the loop again, if this does not find it.
        self._is_waking = False
        while self._said:
            self._said.popleft()()


_inboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Inbox] = WeakKeyDictionary()


class Worker:
    """Carries out calls one after the other in a daemon thread.

    Unlike an executor's, a thread that hangs does not keep the process from ending.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result, or what it raised; a cancelled call is left to end alone."""
        loop = asyncio.get_running_loop()
        inbox = _inboxes.setdefault(loop, _Inbox())
        answer: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)  # type: ignore[arg-type]

        def carry_out() -> None:
            result, error = None, None
            try:
                result = function(*arguments)
            except BaseException as raised:
                error = raised
            inbox.say(loop, partial(settle, result, error))

        self._calls.put(carry_out)
        return await answer

    def close(self, last: Callable[[], None] | None = None) -> None:
        """End the thread after the call that runs, and after `last`; does not wait for it."""
        if last is not None:
            self._calls.put(last)
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


class Workers:
    """As many workers as there are calls at once, kept for the calls that follow.

    A thread takes about a millisecond to start where many do: hundreds of calls in a row are
    cheaper by threads that are there.

    Args:
        name: of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[Worker] = []

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """As `Worker.call`, beside all others; the thread of a cancelled call is left behind."""
        worker = self._idle.pop() if self._idle else Worker(self._name)
        try:
            result = await worker.call(function, *arguments)
        except asyncio.CancelledError:
            worker.close()
            raise
        except BaseException:
            self._idle.append(worker)
            raise
        self._idle.append(worker)
        return result

    def close(self) -> None:
        """End the threads that wait."""
        while self._idle:
            self._idle.pop().close()
