"""Weights in chunks through shared memory, by vLLM's weight transfer; needs no GPU."""

from typing import Any

from agentrl.policies.engines.vllm_engine import VLLMEngine
from agentrl.weight_sync import weight_files
from agentrl.weight_sync.vllm_transport import VLLMTransport
from agentrl.weight_sync.weight_transport import TransportNeeds


class SharedMemoryTransport(VLLMTransport):
    """Sends one chunk after the other as a file in shared memory."""

    needs = TransportNeeds(engine=VLLMEngine, backend="shared", one_node=True, memory_copies=1)

    def trainer_info(self, rank: int, host: str, workers: int) -> Any:
        """See `VLLMTransport.trainer_info`."""
        from agentrl.policies.engines.vllm_transfer import shared_trainer_info

        return shared_trainer_info(rank, weight_files.shared_folder())
