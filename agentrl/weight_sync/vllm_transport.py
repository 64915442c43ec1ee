"""The transports `shared`, `ipc` and `nccl`, which use vLLM's own weight transfer."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agentrl.policies.engines.vllm_engine import VLLMEngine
from agentrl.weight_sync import published_weights
from agentrl.weight_sync.engine_link import EngineLink
from agentrl.weight_sync.weight_transport import StreamedTransport, TransportNeeds, WeightSource

_Call = tuple[str, tuple[Any, ...]]
"""A method of vLLM's weight-transfer API, and its arguments."""


class VLLMTransport(StreamedTransport):
    """Sends weights through one of vLLM's transfer backends, named in `needs.backend`."""

    def __init__(self) -> None:
        self._trainer: Any = None

    @abstractmethod
    def trainer_info(self, rank: int, host: str, workers: int) -> Any:
        """Return vLLM's settings for the learner's end; `workers` is the total of all engines."""

    def send(self, weights: WeightSource, link: EngineLink, rank: int, host: str) -> None:
        """See `StreamedTransport.send`."""
        if self._trainer is None:
            from agentrl.policies.engines.vllm_weight_transfer import open_trainer

            info = self.trainer_info(rank, host, link.workers)
            self._trainer = open_trainer(info, VLLMClient(link), weights)
        self._trainer.send_weights()

    def disconnect(self) -> None:
        """See `StreamedTransport.disconnect`."""
        if self._trainer is not None:
            self._trainer.shutdown()
            self._trainer = None

    async def begin(
        self, engine: VLLMEngine, version: int, shapes: Mapping[str, Sequence[int]], checked: bool
    ) -> None:
        """See `VLLMEngine.begin_weight_update`."""
        await engine.begin_weight_update(version, shapes, checked)

    async def receive(self, engine: VLLMEngine, message: _Call) -> None:
        """See `VLLMEngine.call_weight_transfer`."""
        method, arguments = message
        await engine.call_weight_transfer(method, *arguments)

    async def finish(
        self, engine: VLLMEngine, version: int, names: Sequence[str], digest: str | None
    ) -> None:
        """See `VLLMEngine.finish_weight_update`."""
        await engine.finish_weight_update(version, names, digest)


class SharedMemoryTransport(VLLMTransport):
    """Sends chunks one after the other as a file in shared memory; needs no GPU."""

    needs = TransportNeeds(engine=VLLMEngine, backend="shared", one_node=True, memory_copies=1)

    def trainer_info(self, rank: int, host: str, workers: int) -> Any:
        """See `VLLMTransport.trainer_info`."""
        # Imported here because only a learner rank with this transport needs vLLM.
        from agentrl.policies.engines.vllm_weight_transfer import shared_trainer_info

        return shared_trainer_info(rank, published_weights.shared_folder())


class IpcTransport(VLLMTransport):
    """Sends handles to the learner's memory on a GPU that engine and learner share."""

    # Handles cover one GPU. An engine on several GPUs would also need the other ranks' handles.
    needs = TransportNeeds(engine=VLLMEngine, gpus="same", max_workers=1, backend="ipc")
    preference: ClassVar[int | None] = 1

    def trainer_info(self, rank: int, host: str, workers: int) -> Any:
        """See `VLLMTransport.trainer_info`."""
        from agentrl.policies.engines.vllm_weight_transfer import ipc_trainer_info

        return ipc_trainer_info(rank)


class NcclTransport(VLLMTransport):
    """Broadcasts weights between GPUs, from rank 0 to all workers of all engines."""

    needs = TransportNeeds(engine=VLLMEngine, gpus="different", backend="nccl")
    preference: ClassVar[int | None] = 1

    def trainer_info(self, rank: int, host: str, workers: int) -> Any:
        """See `VLLMTransport.trainer_info`."""
        from agentrl.policies.engines.vllm_weight_transfer import nccl_trainer_info

        return nccl_trainer_info(rank, host, workers)


class VLLMClient:
    """Client with which vLLM's trainer side calls all engines over a link."""

    def __init__(self, link: EngineLink) -> None:
        self._link = link

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Connect each engine to the learner; for NCCL, engines get consecutive ranks."""
        first = init_info.get("rank_offset")
        infos = [dict(init_info) for _ in range(self._link.engines)]
        # vLLM assumes a single engine, whose workers begin at this rank.
        if first is not None:
            for k, info in enumerate(infos):
                info["rank_offset"] = first + k * self._link.workers_per_engine
        self._link.send_each([("init_weight_transfer_engine", (info,)) for info in infos])

    def start_weight_update(self) -> None:
        """Announce an update to all engines."""
        self._link.send(("start_weight_update", ()))

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Send one chunk of the weights; return once the engines have loaded it."""
        # vLLM's utility calls accept plain values only.
        if "ipc_handles" in update_info:
            plain = {name: value for name, value in update_info.items() if name != "ipc_handles"}
            packed = b64encode(pickle.dumps(update_info["ipc_handles"])).decode()
            update_info = plain | {"ipc_handles_pickled": packed}
        self._link.send(("update_weights", (update_info,)))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Finish the update on all engines."""
        self._link.send(("finish_weight_update", ()))
