"""Interface of weight transports, which send new weights from the learner to the engines.

`train.weight_transfer` selects a transport. The rest of the package checks `WeightTransport.needs`,
never a transport's name.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from agentrl.policies.engines.engine import TokenEngine
from agentrl.weight_sync import published_weights
from agentrl.weight_sync.engine_link import EngineLink

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(slots=True, kw_only=True, frozen=True)
class TransportNeeds:
    """Requirements of a transport, checked before any work starts."""

    engine: type[TokenEngine] = TokenEngine  # type: ignore[type-abstract]
    """Engine class that the transport supports, including subclasses."""
    gpus: Literal["same", "different"] | None = None
    """Whether engine and learner must share a GPU, or must not; None if GPUs do not matter."""
    one_node: bool = False
    """Whether all engines must be on the learner's node."""
    max_workers: int | None = None
    """Maximum number of worker processes per engine; None means unlimited."""
    memory_copies: int = 0
    """Number of copies of the weights in a node's shared memory at a time."""
    backend: str | None = None
    """The engine's own weight-transfer backend, which it sets up when it starts."""


class WeightSource(Protocol):
    """The learner's weights, to be sent by a transport."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all weights in order, by Hugging Face name."""

    def iter_full_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all weights, each complete on every rank; a collective call of all ranks."""


class PublishingLearner(published_weights.SavesWeights, published_weights.SavesAdapters, Protocol):
    """The learner's interface for a transport in the trainer's process; see `Learner`."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights, by name."""

    def send_weights(self, transport: str, link: EngineLink) -> str | None:
        """Let every rank send its weights; return their checksum, if it is computed."""


class UpdatedEngines(Protocol):
    """The engines' interface for a transport in the trainer's process; see `EngineHost`."""

    def load_weights(self, path: Path, version: int) -> Awaitable[None]:
        """Load a file of weights."""

    def load_adapter(self, folder: Path, version: int) -> Awaitable[None]:
        """Load adapters, in PEFT's format."""

    def begin_weight_update(
        self, version: int, shapes: Mapping[str, Sequence[int]], checked: bool
    ) -> Awaitable[None]:
        """Prepare for weights that the learner sends."""

    def finish_weight_update(
        self, version: int, names: Sequence[str], digest: str | None
    ) -> Awaitable[None]:
        """Start using the weights that the learner has sent."""

    def link(self) -> EngineLink:
        """The learner's connection to the engines."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Update:
    """One update of the engines' weights."""

    version: int
    """Version of the weights, in training steps."""
    transport: str
    """The setting that names the transport, for the learner's ranks."""
    checked: bool
    """Whether checksums are compared (`train.check_weights`)."""
    adapters_only: bool = False
    """Whether engines receive only the adapters (`model.lora.serve`)."""


class WeightTransport(ABC):
    """Base class of the transports named by `train.weight_transfer`."""

    needs: ClassVar[TransportNeeds] = TransportNeeds()
    preference: ClassVar[int | None] = None
    """`train.weight_transfer=auto` picks the usable transport with the highest value; it never
    picks a transport with None."""
    carries_adapters: ClassVar[bool] = False
    """Whether the transport can publish only the adapters."""

    @abstractmethod
    async def publish(
        self, learner: PublishingLearner, engines: UpdatedEngines, update: Update
    ) -> str | None:
        """Update all engines, called in the trainer's process.

        Returns:
            The weights' checksum (`weight_checks.join_digests`), for the log; None if unknown.

        Raises:
            EngineError: an engine rejected the weights.
            LearnerError: the learner failed.
        """


class StreamedTransport(WeightTransport):
    """A transport with two ends: `send` in every rank of the learner, the rest at every engine.

    Each end is a separate object that lives as long as its process. An update calls `begin` at
    every engine, `send` in every rank, which calls `receive` at the engines, and `finish` at every
    engine.
    """

    async def publish(
        self, learner: PublishingLearner, engines: UpdatedEngines, update: Update
    ) -> str | None:
        """See `WeightTransport.publish`."""
        # In threads, because the learner's calls block while engines answer on this event loop.
        shapes = await asyncio.to_thread(learner.shapes)
        await engines.begin_weight_update(update.version, shapes, update.checked)
        digest = await asyncio.to_thread(learner.send_weights, update.transport, engines.link())
        await engines.finish_weight_update(update.version, list(shapes), digest)
        return digest

    # --- in every rank of the learner ---------------------------------------------------------

    @abstractmethod
    def send(self, weights: WeightSource, link: EngineLink, rank: int, host: str) -> None:
        """Send all weights; a collective call.

        Args:
            weights: the weights; every rank must iterate over all of them, because each is gathered
                from all ranks.
            link: link to the engines; only rank 0 uses it.
            rank: rank of this process.
            host: address of this machine.
        """

    def disconnect(self) -> None:
        """Close the learner's end; may be called twice."""

    # --- at every engine ----------------------------------------------------------------------

    async def begin(
        self, engine: Any, version: int, shapes: Mapping[str, Sequence[int]], checked: bool
    ) -> None:
        """Prepare an engine for an update.

        Args:
            engine: a started engine of the class that the transport needs.
            version: version of the weights.
            shapes: shapes of all weights that will arrive, by name.
            checked: whether to verify the checksum passed to `finish`.

        Raises:
            EngineError: the weights belong to a different model.
        """

    @abstractmethod
    async def receive(self, engine: Any, message: Any) -> None:
        """Accept one message from the learner's end, where `EngineLink.send` waits for the return.

        Args:
            engine: the engine, as in `begin`.
            message: the picklable message passed to `EngineLink.send`.

        Raises:
            EngineError: the engine rejected the message.
        """

    @abstractmethod
    async def finish(
        self, engine: Any, version: int, names: Sequence[str], digest: str | None
    ) -> None:
        """Start using the weights that have arrived.

        Args:
            engine: the engine, as in `begin`.
            version: version of the weights.
            names: names of all weights that were sent.
            digest: the weights' checksum (`weight_checks.join_digests`); None if not computed.

        Raises:
            EngineError: other weights than those sent have arrived.
        """
