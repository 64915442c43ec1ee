"""Extension of vLLM's workers that loads weights from a file and verifies transferred weights."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn

from agentrl.policies.engines import vllm_weight_transfer
from agentrl.policies.engines.weight_checks import check_digest, join_digests, tensor_digest
from agentrl.policies.models.weight_conversion import as_stored

vllm_weight_transfer.register()


class WeightLoader:
    """Methods that vLLM mixes into its worker class (`worker_extension_cls`)."""

    model_runner: Any
    weights_are_torn = False
    """Whether a load failed midway. vLLM keeps the weights it had read and would mix them with the
    next load's."""
    _received: dict[str, str]
    """Checksums of the tensors that arrived, by name; empty strings if checksums are off."""

    def load_safetensors(self, path: str) -> int:
        """Replace all weights with those in a file, and return the number of tensors in it."""
        self._check_intact()
        weights = load_file(path)
        check_digest(Path(path), weights)
        weights = as_stored(self._model_folder(), weights)
        self.weights_are_torn = True
        _reset_expert_kernels(self.model_runner.get_model())
        # load_weights would not work, because the CPU backend packs weights for oneDNN and frees
        # the originals.
        self.model_runner.reload_weights(weights_iterator=iter(weights.items()))
        _pack_tied_heads(self.model_runner.get_model())
        self.weights_are_torn = False
        return len(weights)

    def start_recording_weights(self, checked: bool) -> None:
        """Record the tensors that vLLM's weight transfer delivers from now on.

        Args:
            checked: whether to compute checksums rather than record only names.
        """
        self._check_intact()
        self.weights_are_torn = True
        model = self.model_runner.get_model()
        _reset_expert_kernels(model)
        received = self._received = dict[str, str]()
        folder = self._model_folder()
        load = type(model).load_weights

        def record(weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
            for name, tensor in weights:
                received[name] = tensor_digest(tensor) if checked else ""
                yield from as_stored(folder, {name: tensor}).items()

        # Every transfer engine delivers weights through this method.
        model.load_weights = lambda weights: load(model, record(weights))

    def verify_recorded_weights(self, names: list[str], digest: str | None) -> None:
        """Verify that all weights have arrived.

        Args:
            names: names of all weights.
            digest: joined checksum of all weights; None skips the comparison.
        """
        model, received = self.model_runner.get_model(), self._received
        del model.load_weights
        if missing := sorted(set(names) - received.keys()):
            raise RuntimeError(f"{len(missing)} weights did not arrive, such as {missing[0]}")
        if digest is not None and join_digests(received) != digest:
            raise RuntimeError(
                f"the engine's weights have checksum {join_digests(received)}, but the learner "
                f"published {digest} (train.check_weights)"
            )
        _pack_tied_heads(model)
        self.weights_are_torn = False

    def check_safetensors(self, path: str) -> None:
        """Verify a file against the checksum in its header, if it has one."""
        check_digest(Path(path), load_file(path))

    def _model_folder(self) -> Path:
        return Path(self.model_runner.model_config.model)

    def _check_intact(self) -> None:
        if self.weights_are_torn:
            raise RuntimeError("an earlier weight load failed midway; restart the engine")


def _reset_expert_kernels(model: nn.Module) -> None:
    """Make vLLM repack a mixture of experts once its new weights are complete.

    On CPUs, the experts' kernel reads packed weights. vLLM packs weights only when a layer has no
    kernel yet; otherwise it leaves the new weights unpacked and the kernel misreads them.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    for module in model.modules():
        method: Any = getattr(module, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None


def _pack_tied_heads(model: nn.Module) -> None:
    """Update output heads that share the embedding's weights.

    On CPUs, a head uses a packed copy of its weights. vLLM repacks only the layers named in the
    file, so a tied head would keep its initial weights.
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
