"""The learner's connection to the engines."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any


class EngineLink(ABC):
    """Sends messages to all engines; calls block until every engine has replied.

    Args:
        engines: number of engines.
        workers_per_engine: worker processes per engine, each with a part of the weights.
    """

    def __init__(self, engines: int, workers_per_engine: int) -> None:
        self.engines, self.workers_per_engine = engines, workers_per_engine
        self.members: tuple[str, ...] = ()
        """Identifiers of the engines, if the engines may change between updates."""

    @property
    def workers(self) -> int:
        """Total number of worker processes of all engines."""
        return self.engines * self.workers_per_engine

    def send(self, message: Any) -> None:
        """Send the same message to every engine, where it is passed to `receive`."""
        self.send_each([message] * self.engines)

    @abstractmethod
    def send_each(self, messages: Sequence[Any]) -> None:
        """Send each engine its own message."""


class LocalLink(EngineLink):
    """A link to this process's engine, used from a thread other than the engine's."""

    def __init__(
        self, receive: Callable[[Any], Awaitable[None]], workers_per_engine: int, deadline_s: float
    ) -> None:
        super().__init__(1, workers_per_engine)
        self._receive, self._deadline_s = receive, deadline_s
        self._loop = asyncio.get_running_loop()

    def send_each(self, messages: Sequence[Any]) -> None:
        """See `EngineLink.send_each`."""

        async def receive() -> None:
            await self._receive(messages[0])

        asyncio.run_coroutine_threadsafe(receive(), self._loop).result(self._deadline_s)
