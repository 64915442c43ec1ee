"""Play the next training steps while the learner updates, with bounded staleness."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class RolloutPrefetcher(Generic[T]):
    """Plays step after step in a background task, at most `lag` updates ahead of the learner.

    Args:
        play: plays one step.
        first: the first step.
        last: the last step, inclusive.
        lag: updates that a step's weights may be behind when it starts; 0 waits for each.
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
        except Exception as error:  # raised again in `take`
            self._played.put_nowait(error)

    async def take(self) -> T:
        """The next step, once it is played.

        Raises:
            AgentRLError: playing it failed.
        """
        played = await self._played.get()
        if isinstance(played, BaseException):
            raise played
        return played

    def learned(self) -> None:
        """The step taken last is trained on, and its weights are published."""
        self._room.release()

    async def close(self) -> None:
        """Stop playing."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
