"""What vLLM's workers can do beside their own: take the weights of a file."""

from typing import Any

from safetensors.torch import load_file


class WeightLoader:
    """Extends vLLM's worker (`worker_extension_cls`); vLLM mixes it into its class."""

    model_runner: Any

    def load_safetensors(self, path: str) -> int:
        """Replace all weights.

        Args:
            path: a safetensors file with Hugging Face names.

        Returns:
            The number of tensors read.
        """
        weights = load_file(path)
        # Not load_weights: the CPU backend packs weights for oneDNN and empties the originals.
        self.model_runner.reload_weights(weights_iterator=iter(weights.items()))
        return len(weights)
