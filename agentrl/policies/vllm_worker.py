"""What vLLM's workers can do beside their own: take the weights of a file."""

from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import nn

from agentrl.policies.digest import check_digest


class WeightLoader:
    """Extends vLLM's worker (`worker_extension_cls`); vLLM mixes it into its class."""

    model_runner: Any
    weights_are_torn = False
    """Whether a load broke off in the middle: vLLM keeps what it had read, and would mix it in."""

    def load_safetensors(self, path: str) -> int:
        """Replace all weights.

        Args:
            path: a safetensors file with Hugging Face names.

        Returns:
            The number of tensors read.

        Raises:
            RuntimeError: an earlier call broke off in the middle.
        """
        if self.weights_are_torn:
            raise RuntimeError("an earlier load broke off in the middle: start the engine anew")
        weights = load_file(path)
        check_digest(Path(path), weights)
        self.weights_are_torn = True
        # Not load_weights: the CPU backend packs weights for oneDNN and empties the originals.
        self.model_runner.reload_weights(weights_iterator=iter(weights.items()))
        _pack_tied_heads(self.model_runner.get_model())
        self.weights_are_torn = False
        return len(weights)


def _pack_tied_heads(model: nn.Module) -> None:
    """Let output heads that share the embedding's weights follow them.

    On CPUs a head computes with a packed copy, which vLLM makes anew for layers that the file
    names; a tied head is not named there, and would go on with its first weights.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    heads = [module for module in model.modules() if isinstance(module, ParallelLMHead)]
    others = {id(p) for m in model.modules() if m not in heads for p in m.parameters(recurse=False)}
    for head in heads:
        if id(head.weight) in others:
            head.quant_method.process_weights_after_loading(head)
