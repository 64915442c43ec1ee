"""A weight-transfer engine for vLLM that uses shared memory.

vLLM's own engines transfer weights between GPUs (`ipc`, `nccl`). This one, `shared`, follows the
same protocol on machines without a GPU: init, start, chunks, finish.
"""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from safetensors.torch import load_file, save_file
from torch import Tensor, dtype
from vllm.distributed.weight_transfer import (
    TrainerWeightTransferEngine,
    VLLMWeightSyncClient,
    WeightSource,
    WeightTransferEngine,
    WeightTransferEngineFactory,
    WeightTransferTrainerFactory,
)
from vllm.distributed.weight_transfer.base import (
    ParamMeta,
    TrainerInitInfo,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

BACKEND = "shared"
_CHUNK_BYTES = 256 * 2**20
"""Maximum bytes of weights in shared memory at a time."""


@dataclass
class SharedInit(WeightTransferInitInfo):  # type: ignore[misc]
    """No settings: each chunk comes with the name of its file."""


@dataclass
class SharedUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]
    """One chunk of the weights."""

    path: str
    """A safetensors file in shared memory; removed after `update_weights` has returned."""


class Named(Protocol):
    """A model's weights by their Hugging Face names."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all weights, in order."""

    def each(self) -> Iterator[tuple[str, Tensor]]:
        """The full weights one after the other, all of one dtype; a collective call."""

    @property
    def dtype(self) -> dtype:
        """The dtype of all weights."""


class _Source(WeightSource):  # type: ignore[misc]
    """The weights behind vLLM's interface."""

    def __init__(self, named: Named) -> None:
        self._named = named

    def metadata(self) -> list[ParamMeta]:
        """Names, dtype and shapes; gathers no weights."""
        shapes = self._named.shapes()
        return [ParamMeta(name, self._named.dtype, shape) for name, shape in shapes.items()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return self._named.each()


class SharedEngine(WeightTransferEngine[SharedInit, SharedUpdate]):  # type: ignore[misc]
    """The receiving side, in vLLM's worker."""

    init_info_cls = SharedInit
    update_info_cls = SharedUpdate

    def init_transfer_engine(self, init_info: SharedInit) -> None:
        """No-op."""

    def start_weight_update(self) -> None:
        """Defer each layer's update until all of it has arrived."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load one chunk; as in vLLM's own engines, but without an accelerator to synchronize."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: SharedUpdate) -> None:
        """Load one chunk; tensors that a layer keeps stay mapped after the file is removed."""
        self.model.load_weights(list(load_file(update_info.path).items()))

    def finish_weight_update(self) -> None:
        """Finish the layers that are still deferred."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """No-op."""


@dataclass
class SharedTrainerInit(TrainerInitInfo):  # type: ignore[misc]
    """Settings of the sending side."""

    backend: ClassVar[str] = BACKEND

    folder: Path
    """In shared memory."""
    chunk_bytes: int
    """Maximum size of a chunk of several tensors."""


class SharedTrainer(TrainerWeightTransferEngine[SharedTrainerInit]):  # type: ignore[misc]
    """The sending side, one in every learner rank.

    Args:
        init_info: this rank's settings.
        client: calls the engines.
        source: the weights.
    """

    init_info_cls = SharedTrainerInit

    def __init__(
        self, init_info: SharedTrainerInit, client: VLLMWeightSyncClient, source: WeightSource
    ) -> None:
        super().__init__(client=client, source=source, is_sender=init_info.is_sender)
        self._folder, self._chunk_bytes = init_info.folder, init_info.chunk_bytes

    @classmethod
    def trainer_init(
        cls,
        init_info: SharedTrainerInit,
        *,
        client: VLLMWeightSyncClient,
        source: WeightSource | None = None,
    ) -> Self:
        """Connect to the engines."""
        assert source is not None
        if init_info.is_sender:
            client.init_weight_transfer_engine({})
        return cls(init_info, client, source)

    def send_weights(self) -> None:
        """Send all weights; called on every rank."""
        if not self.is_sender:
            for _ in self.source:  # a collective call: only rank 0 keeps what is gathered
                pass
            return
        self.client.start_weight_update()
        for number, chunk in enumerate(self._chunks()):
            path = self._folder / f"chunk-{os.getpid()}-{number:06d}.safetensors"
            try:
                save_file(chunk, path)
                self.client.update_weights({"path": str(path)})
            finally:
                path.unlink(missing_ok=True)
        self.client.finish_weight_update()

    def _chunks(self) -> Iterator[dict[str, Tensor]]:
        chunk, size = dict[str, Tensor](), 0
        for name, tensor in self.source:
            if chunk and size + tensor.nbytes > self._chunk_bytes:
                yield chunk
                chunk, size = {}, 0
            chunk[name] = tensor.contiguous()
            size += tensor.nbytes
        yield chunk


def register() -> None:
    """Register `shared` with vLLM in this process; may be called twice."""
    for factory, engine in (
        (WeightTransferEngineFactory, SharedEngine),
        (WeightTransferTrainerFactory, SharedTrainer),
    ):
        if BACKEND not in factory._registry:
            factory.register_engine(BACKEND, engine)


def open_trainer(
    kind: str,
    rank: int,
    source: Named,
    client: VLLMWeightSyncClient,
    *,
    workers: int,
    host: str,
    folder: Path,
) -> TrainerWeightTransferEngine:
    """Open the sending side of a transfer, connected to the engines; called on every rank.

    Args:
        kind: `shared`, `ipc` or `nccl`.
        rank: this rank; 0 sends.
        source: the weights.
        client: with which rank 0 calls the engines.
        workers: number of processes of all engines together.
        host: this machine's address, as the master of `nccl`.
        folder: in shared memory, for the chunks of `shared`.
    """
    register()
    if kind == BACKEND:
        settings = SharedTrainerInit(rank=rank, folder=folder, chunk_bytes=_CHUNK_BYTES)
    elif kind == "ipc":
        from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

        settings = IPCTrainerInitInfo(rank=rank, packed=True)  # several tensors at a time
    else:
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

        settings = NCCLTrainerInitInfo(
            master_address=host, master_port=_free_port(), world_size=1 + workers, rank=rank
        )
    return WeightTransferTrainerFactory.trainer_init(
        settings, client=client, source=_Source(source)
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
