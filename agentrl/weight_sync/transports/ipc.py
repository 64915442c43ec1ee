"""Weights by CUDA IPC, within a GPU that engine and learner share, by vLLM's weight transfer."""

from typing import Any, ClassVar

from agentrl.policies.engines.vllm_engine import VLLMEngine
from agentrl.weight_sync.vllm_transport import VLLMTransport
from agentrl.weight_sync.weight_transport import TransportNeeds


class IpcTransport(VLLMTransport):
    """Sends handles of the learner's GPU memory."""

    needs = TransportNeeds(engine=VLLMEngine, gpus="same", max_workers=1, backend="ipc")
    preference: ClassVar[int | None] = 1

    def trainer_info(self, rank: int, host: str, workers: int) -> Any:
        """See `VLLMTransport.trainer_info`."""
        from agentrl.policies.engines.vllm_transfer import ipc_trainer_info

        return ipc_trainer_info(rank)
