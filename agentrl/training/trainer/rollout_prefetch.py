"""Steps that are played while earlier ones are learned, within a bound."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Plays step after step in a task of its own, at most `lag` updates ahead of the learner.

    Args:
        play: plays one step.
        first: the first step.
        last: the last one, played too.
        lag: updates that may be missing when a step begins to be played; 0 waits for each.
    """

    def __init__(
        self, play: Callable[[int], Awaitable[T]], first: int, last: int, lag: int
    ) -> None:
        self._play, self._steps = play, range(first, last + 1)
        self._room = asyncio.Semaphore(lag + 1)
        self._played: asyncio.Queue[T | BaseException] = asyncio.Queue()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            for step in self._steps:
                await self._room.acquire()
                self._played.put_nowait(await self._play(step))
        except Exception as error:  # whoever takes the step hears of it
            self._played.put_nowait(error)

    async def take(self) -> T:
        """The next step, once it is played.

        Raises:
            AgentRLError: it could not be played.
        """
        found = await self._played.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def learned(self) -> None:
        """The step taken last is learned, and its weights are published."""
        self._room.release()

    async def close(self) -> None:
        """Play nothing more."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
