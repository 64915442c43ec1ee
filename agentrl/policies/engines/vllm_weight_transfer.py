"""The `shared` backend for vLLM's weight transfer, which uses shared memory.

vLLM's own backends (`ipc`, `nccl`) need GPUs; `shared` follows the same protocol (init, start,
chunks, finish) without GPUs.
"""

import os
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

from agentrl.child_process import free_port

BACKEND = "shared"
# Maximum size of a chunk of weights in shared memory.
_CHUNK_BYTES = 256 * 2**20


@dataclass
class SharedInit(WeightTransferInitInfo):  # type: ignore[misc]
    """Empty, because each update names its file."""


@dataclass
class SharedUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]
    """One chunk of the weights."""

    path: str
    """A safetensors file in shared memory; it is removed once `update_weights` has returned."""


class NamedWeights(Protocol):
    """Weights by their Hugging Face names."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all weights, in order."""

    def iter_full_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all weights one by one, unsharded and in one dtype. A collective call."""

    @property
    def dtype(self) -> dtype:
        """The dtype of the weights."""


class _Source(WeightSource):  # type: ignore[misc]
    """Adapts `NamedWeights` to vLLM's interface."""

    def __init__(self, named: NamedWeights) -> None:
        self._named = named

    def metadata(self) -> list[ParamMeta]:
        """Return names, dtypes and shapes without gathering any weights."""
        shapes = self._named.shapes()
        return [ParamMeta(name, self._named.dtype, shape) for name, shape in shapes.items()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return self._named.iter_full_weights()


class SharedEngine(WeightTransferEngine[SharedInit, SharedUpdate]):  # type: ignore[misc]
    """The engine's side of a transfer, in vLLM's worker."""

    init_info_cls = SharedInit
    update_info_cls = SharedUpdate

    def init_transfer_engine(self, init_info: SharedInit) -> None:
        """Do nothing, because there is no connection."""

    def start_weight_update(self) -> None:
        """Prepare to process each layer once all of its weights have arrived."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load one chunk, as vLLM's own engines do, but without synchronizing a GPU."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: SharedUpdate) -> None:
        """Load one chunk. Tensors that a layer keeps stay mapped after the file is removed."""
        self.model.load_weights(list(load_file(update_info.path).items()))

    def finish_weight_update(self) -> None:
        """Process the layers that have not been processed yet."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Do nothing, because there is no connection."""


@dataclass
class SharedTrainerInit(TrainerInitInfo):  # type: ignore[misc]
    """Arguments of the learner's side of a transfer."""

    backend: ClassVar[str] = BACKEND

    folder: Path
    """Folder in shared memory."""
    chunk_bytes: int
    """Maximum size of a chunk, unless a single tensor is larger."""


class SharedTrainer(TrainerWeightTransferEngine[SharedTrainerInit]):  # type: ignore[misc]
    """The learner's side of a transfer; every rank has an instance."""

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
        """Send all weights; a collective call."""
        # Other ranks only take part in gathering the weights that rank 0 sends.
        if not self.is_sender:
            for _ in self.source:
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
    """Register the `shared` backend with vLLM in this process. Idempotent."""
    for factory, engine in (
        (WeightTransferEngineFactory, SharedEngine),
        (WeightTransferTrainerFactory, SharedTrainer),
    ):
        if BACKEND not in factory._registry:
            factory.register_engine(BACKEND, engine)


def open_trainer(
    info: TrainerInitInfo, client: VLLMWeightSyncClient, source: NamedWeights
) -> TrainerWeightTransferEngine:
    """Connect the learner's side of a transfer to the engines; call it on every rank."""
    register()
    return WeightTransferTrainerFactory.trainer_init(info, client=client, source=_Source(source))


def shared_trainer_info(rank: int, folder: Path) -> TrainerInitInfo:
    """Return settings for `shared`, where rank 0 sends chunks through a shared-memory folder."""
    return SharedTrainerInit(rank=rank, folder=folder, chunk_bytes=_CHUNK_BYTES)


def ipc_trainer_info(rank: int) -> TrainerInitInfo:
    """Return settings for `ipc`, which sends weights in chunks."""
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

    return IPCTrainerInitInfo(rank=rank, packed=True)


def nccl_trainer_info(rank: int, host: str, workers: int) -> TrainerInitInfo:
    """Return settings for `nccl`, where rank 0 and all engines' workers form a process group."""
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    return NCCLTrainerInitInfo(
        master_address=host, master_port=free_port(""), world_size=1 + workers, rank=rank
    )
