"""One learner rank's end of a streamed transport."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agentrl.policies.engines.weight_checks import join_digests, tensor_digest
from agentrl.weight_sync.engine_link import EngineLink
from agentrl.weight_sync.weight_transport import StreamedTransport, WeightSource

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class WeightSender:
    """Sends a model's weights from one rank; stays connected between publishes."""

    def __init__(
        self,
        transport: StreamedTransport,
        model: WeightSource,
        link: EngineLink,
        *,
        rank: int,
        host: str,
    ) -> None:
        self._transport = transport
        self._source = _ChecksummedWeights(model)
        self._link, self._rank, self._host = link, rank, host
        self.members = link.members

    def send(self, *, checked: bool) -> str | None:
        """Send all weights (a collective call); return their checksum on rank 0 if `checked`."""
        # Every rank sees all weights, so one checksum is enough.
        checked = checked and self._rank == 0
        self._source.begin(checked=checked)
        self._transport.send(self._source, self._link, self._rank, self._host)
        return join_digests(self._source.digests) if checked else None

    def close(self) -> None:
        """Disconnect from the engines."""
        self._transport.disconnect()


class _ChecksummedWeights:
    """Yields a model's weights one by one and records their checksums."""

    def __init__(self, model: WeightSource) -> None:
        self._model = model
        self._checked = False
        self.digests: dict[str, str] = {}

    def begin(self, *, checked: bool) -> None:
        """Forget the checksums of the last transfer."""
        self._checked, self.digests = checked, {}

    @property
    def dtype(self) -> torch.dtype:
        """See `WeightSource.dtype`."""
        return self._model.dtype

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """See `WeightSource.shapes`."""
        return self._model.shapes()

    def iter_full_weights(self) -> Iterator[tuple[str, Tensor]]:
        """See `WeightSource.iter_full_weights`."""
        for name, tensor in self._model.iter_full_weights():
            if self._checked:
                self.digests[name] = tensor_digest(tensor)
            yield name, tensor
