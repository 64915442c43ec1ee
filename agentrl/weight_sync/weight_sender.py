"""Sends weights from a learner rank to running engines, by vLLM's weight transfer."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from agentrl.policies import torch_companions
from agentrl.policies.engines.weight_digest import join_digests, tensor_digest
from agentrl.weight_sync import weight_files
from agentrl.weight_sync.engine_link import Link


class SourceModel(Protocol):
    """A model that yields its full weights by name; see `ShardedModel`."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all weights, in their order."""

    def each(self) -> Iterator[tuple[str, Tensor]]:
        """All weights one by one; a collective call."""


class WeightSender:
    """One rank's end of the transfer; stays connected between publishes.

    Args:
        kind: `shared`, `ipc` or `nccl`.
        model: the source of the weights.
        link: connects rank 0 to the engines.
        rank: this rank.
        host: this machine's address, for `nccl`.
    """

    def __init__(self, kind: str, model: SourceModel, link: Link, *, rank: int, host: str) -> None:
        torch_companions.patch_broken_imports()
        from agentrl.policies.engines.vllm_transfer import open_trainer

        self._source = _ChecksummedWeights(model)
        self._trainer = open_trainer(
            kind, rank, self._source, link,
            workers=link.workers, host=host, folder=weight_files.shared_folder(),
        )  # fmt: skip

    def send(self, *, checked: bool) -> str | None:
        """Send all weights; a collective call.

        Args:
            checked: whether to compute a checksum.

        Returns:
            The checksum, None if not computed.
        """
        self._source.begin(checked=checked)
        self._trainer.send_weights()
        return join_digests(self._source.digests) if checked else None

    def close(self) -> None:
        """Disconnect from the engines."""
        self._trainer.shutdown()


class _ChecksummedWeights:
    """Yields a model's weights one by one and records their checksums."""

    def __init__(self, model: SourceModel) -> None:
        self._model = model
        self._checked = False
        self.digests: dict[str, str] = {}

    def begin(self, *, checked: bool) -> None:
        """Forget the checksums of the last transfer."""
        self._checked, self.digests = checked, {}

    @property
    def dtype(self) -> torch.dtype:
        """See `SourceModel.dtype`."""
        return self._model.dtype

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """See `SourceModel.shapes`."""
        return self._model.shapes()

    def each(self) -> Iterator[tuple[str, Tensor]]:
        """See `SourceModel.each`."""
        for name, tensor in self._model.each():
            if self._checked:
                self.digests[name] = tensor_digest(tensor)
            yield name, tensor
