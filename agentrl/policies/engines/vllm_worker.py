"""What vLLM's workers can do beside their own: take a file of weights, and see what comes."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn

from agentrl.policies.engines import vllm_transfer
from agentrl.policies.engines.weight_digest import check_digest, digest_of, joined

vllm_transfer.register()


class WeightLoader:
    """Extends vLLM's worker (`worker_extension_cls`); vLLM mixes it into its class."""

    model_runner: Any
    weights_are_torn = False
    """Whether a load broke off in the middle: vLLM keeps what it had read, and would mix it in."""
    _seen: dict[str, str]
    """The checksums of what has come, by name; empty ones where nobody asked for them."""

    def load_safetensors(self, path: str) -> int:
        """Replace all weights.

        Args:
            path: a safetensors file with Hugging Face names.

        Returns:
            The number of tensors read.

        Raises:
            RuntimeError: an earlier call broke off in the middle.
        """
        self._begin()
        weights = load_file(path)
        check_digest(Path(path), weights)
        self.weights_are_torn = True
        # Not load_weights: the CPU backend packs weights for oneDNN and empties the originals.
        self.model_runner.reload_weights(weights_iterator=iter(weights.items()))
        _pack_tied_heads(self.model_runner.get_model())
        self.weights_are_torn = False
        return len(weights)

    def watch_weights(self, checked: bool) -> None:
        """From now on vLLM's own weight transfer brings weights: note what comes.

        Args:
            checked: every bit of it, not the names alone.

        Raises:
            RuntimeError: as `load_safetensors`.
        """
        self._begin()
        self.weights_are_torn = True
        model = self.model_runner.get_model()
        seen = self._seen = dict[str, str]()
        load = type(model).load_weights

        def noted(weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
            for name, tensor in weights:
                seen[name] = digest_of(tensor) if checked else ""
                yield name, tensor

        # Whatever carries the bytes hands them over here.
        model.load_weights = lambda weights: load(model, noted(weights))

    def finish_watching(self, names: list[str], digest: str | None) -> None:
        """All weights should have come.

        Args:
            names: theirs.
            digest: what `joined` makes of them; None where nobody asked.

        Raises:
            RuntimeError: others have.
        """
        model, seen = self.model_runner.get_model(), self._seen
        del model.load_weights
        if missing := sorted(set(names) - seen.keys()):
            raise RuntimeError(f"{len(missing)} weights did not come, such as {missing[0]}")
        if digest is not None and joined(seen) != digest:
            raise RuntimeError(
                f"the engine has weights {joined(seen)}, published were {digest} "
                "(train.check_weights)"
            )
        _pack_tied_heads(model)
        self.weights_are_torn = False

    def check_safetensors(self, path: str) -> None:
        """Compare a file with its own checksum, if it has one."""
        check_digest(Path(path), load_file(path))

    def _begin(self) -> None:
        if self.weights_are_torn:
            raise RuntimeError("an earlier load broke off in the middle: start the engine anew")


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
