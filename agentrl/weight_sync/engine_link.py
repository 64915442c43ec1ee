"""The learner's connection to engines during weight transfer, with vLLM's client interface."""

import asyncio
import pickle
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any


class Link(ABC):
    """Client of all engines, as vLLM's trainer side calls it; calls block until all answered.

    Args:
        engines: number of engines.
        workers_each: worker processes per engine, each with a part of the weights.
    """

    def __init__(self, engines: int, workers_each: int) -> None:
        self._engines, self._workers_each = engines, workers_each

    @property
    def workers(self) -> int:
        """Worker processes of all engines together."""
        return self._engines * self._workers_each

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Connect each engine to the learner; for NCCL, engines get consecutive ranks."""
        first = init_info.get("rank_offset")
        infos = [dict(init_info) for _ in range(self._engines)]
        if first is not None:
            for k, info in enumerate(infos):
                info["rank_offset"] = first + k * self._workers_each
        self._call("init_weight_transfer_engine", [(info,) for info in infos])

    def start_weight_update(self) -> None:
        """Announce an update to all engines."""
        self._call("start_weight_update", [()] * self._engines)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Send one chunk of the weights; returns when the engines have loaded it."""
        if "ipc_handles" in update_info:  # vLLM's utility calls accept plain values only
            plain = {name: value for name, value in update_info.items() if name != "ipc_handles"}
            packed = b64encode(pickle.dumps(update_info["ipc_handles"])).decode()
            update_info = plain | {"ipc_handles_pickled": packed}
        self._call("update_weights", [(update_info,)] * self._engines)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Finish the update on all engines."""
        self._call("finish_weight_update", [()] * self._engines)

    @abstractmethod
    def _call(self, method: str, arguments: list[tuple[Any, ...]]) -> None:
        """Call a method of every engine, each with its own arguments."""


class LocalLink(Link):
    """A link to the engine of this process, used from a thread other than the engine's.

    Args:
        call: the engine's `call`.
        workers_each: see `Link`.
        deadline_s: for each call.
    """

    def __init__(
        self, call: Callable[..., Awaitable[None]], workers_each: int, deadline_s: float
    ) -> None:
        super().__init__(1, workers_each)
        self._engine, self._deadline_s = call, deadline_s
        self._loop = asyncio.get_running_loop()

    def _call(self, method: str, arguments: list[tuple[Any, ...]]) -> None:
        async def call() -> None:
            await self._engine(method, *arguments[0])

        asyncio.run_coroutine_threadsafe(call(), self._loop).result(self._deadline_s)
