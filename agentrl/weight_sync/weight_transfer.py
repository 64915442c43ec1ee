"""Weights from a learner rank to running engines, by vLLM's weight transfer."""

from __future__ import annotations

import asyncio
import pickle
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from agentrl.policies.engines.weight_checks import join_digests, tensor_digest
from agentrl.weight_sync import weight_files

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Link(ABC):
    """Client of all engines, as vLLM's trainer side calls it; calls block until all answered.

    Args:
        engines: number of engines.
        workers_per_engine: worker processes per engine, each with a part of the weights.
    """

    def __init__(self, engines: int, workers_per_engine: int) -> None:
        self._engines, self._workers_per_engine = engines, workers_per_engine

    @property
    def workers(self) -> int:
        """Worker processes of all engines together."""
        return self._engines * self._workers_per_engine

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Connect each engine to the learner; for NCCL, engines get consecutive ranks."""
        first = init_info.get("rank_offset")
        infos = [dict(init_info) for _ in range(self._engines)]
        if first is not None:
            for k, info in enumerate(infos):
                info["rank_offset"] = first + k * self._workers_per_engine
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
        workers_per_engine: see `Link`.
        deadline_s: for each call.
    """

    def __init__(
        self, call: Callable[..., Awaitable[None]], workers_per_engine: int, deadline_s: float
    ) -> None:
        super().__init__(1, workers_per_engine)
        self._engine, self._deadline_s = call, deadline_s
        self._loop = asyncio.get_running_loop()

    def _call(self, method: str, arguments: list[tuple[Any, ...]]) -> None:
        async def call() -> None:
            await self._engine(method, *arguments[0])

        asyncio.run_coroutine_threadsafe(call(), self._loop).result(self._deadline_s)


class SourceModel(Protocol):
    """A model that yields its full weights by name; see `ShardedModel`."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all weights, in their order."""

    def iter_full_weights(self) -> Iterator[tuple[str, Tensor]]:
        """All weights one by one; a collective call."""


class WeightSender:
    """One rank's end of the transfer; stays connected between publishes.

    Args:
        kind: `shared`, `ipc` or `nccl`.
        model: the source of the weights.
        link: connects rank 0 to the engines.
        rank: rank of this process.
        host: address of this machine, for `nccl`.
    """

    def __init__(self, kind: str, model: SourceModel, link: Link, *, rank: int, host: str) -> None:
        from agentrl.policies import torch_companions

        torch_companions.patch_broken_imports()
        from agentrl.policies.engines.vllm_transfer import open_trainer

        self._source = _ChecksummedWeights(model)
        self._trainer = open_trainer(
            kind, rank, self._source, link,
            workers=link.workers, host=host, folder=weight_files.shared_folder(),
        )  # fmt: skip

    def send(self, *, checked: bool) -> str | None:
        """Send all weights; a collective call.

        Args:
            checked: whether to compute a checksum.

        Returns:
            The checksum, None if not computed.
        """
        self._source.begin(checked=checked)
        self._trainer.send_weights()
        return join_digests(self._source.digests) if checked else None

    def close(self) -> None:
        """Disconnect from the engines."""
        self._trainer.shutdown()


class _ChecksummedWeights:
    """Yields a model's weights one by one and records their checksums."""

    def __init__(self, model: SourceModel) -> None:
        self._model = model
        self._checked = False
        self.digests: dict[str, str] = {}

    def begin(self, *, checked: bool) -> None:
        """Forget the checksums of the last transfer."""
        self._checked, self.digests = checked, {}

    @property
    def dtype(self) -> torch.dtype:
        """See `SourceModel.dtype`."""
        return self._model.dtype

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """See `SourceModel.shapes`."""
        return self._model.shapes()

    def iter_full_weights(self) -> Iterator[tuple[str, Tensor]]:
        """See `SourceModel.iter_full_weights`."""
        for name, tensor in self._model.iter_full_weights():
            if self._checked:
                self.digests[name] = tensor_digest(tensor)
            yield name, tensor
