"""Weights by NCCL, between the GPUs of learner and engines, by vLLM's weight transfer."""

from typing import Any, ClassVar

from agentrl.policies.engines.vllm_engine import VLLMEngine
from agentrl.weight_sync.vllm_transport import VLLMTransport
from agentrl.weight_sync.weight_transport import TransportNeeds


class NcclTransport(VLLMTransport):
    """Broadcasts weights from rank 0 to all workers of all engines."""

    needs = TransportNeeds(engine=VLLMEngine, gpus="different", backend="nccl")
    preference: ClassVar[int | None] = 1

    def trainer_info(self, rank: int, host: str, workers: int) -> Any:
        """See `VLLMTransport.trainer_info`."""
        from agentrl.policies.engines.vllm_transfer import nccl_trainer_info

        return nccl_trainer_info(rank, host, workers)
