"""Publishes the learner's weights to the engines."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from agentrl.weight_sync import weight_files
from agentrl.weight_sync.transports import WeightTransport
from agentrl.weight_sync.weight_transfer import Link


class PublishingLearner(weight_files.SavesWeights, weight_files.SavesAdapters, Protocol):
    """The learner, as the publisher uses it; see `Learner`."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights, by name."""

    def send_weights(self, kind: str, link: Link) -> str | None:
        """Send the weights; returns their checksum, if it is computed."""


class UpdatedEngines(Protocol):
    """The engines, as the publisher uses them; see `RolloutWorker`."""

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
        """Play with the weights that the learner has sent."""

    def link(self) -> Link:
        """The learner's connection to the engines."""

    def sleep(self) -> Awaitable[None]:
        """Free the GPU's memory until the next update."""


class Publisher:
    """Publishes the learner's weights to the engines.

    Args:
        transport: how weights get to the engines.
        learner: the source of the weights.
        engines: receive the weights.
    """

    def __init__(
        self, transport: WeightTransport, learner: PublishingLearner, engines: UpdatedEngines
    ) -> None:
        self._transport, self._learner, self._engines = transport, learner, engines
        self._kind = transport.kind()
        self._sleeps = transport.sleeps()
        self._base_is_sent = False

    async def publish(self, version: int) -> None:
        """Update all engines: everything sampled afterwards uses the learner's weights.

        Raises:
            EngineError: an engine rejected them.
            LearnerError: the learner failed.
        """
        if self._transport.serves_adapters:
            await self._publish_adapter(version)
        elif self._kind == "file":
            path = await asyncio.to_thread(weight_files.publish, self._learner, version)
            await self._engines.load_weights(path, version)
        else:
            await self._send(version)

    async def make_room(self) -> None:
        """Put engines to sleep before the learner computes, if they share its GPU."""
        if self._sleeps:
            await self._engines.sleep()

    async def _publish_adapter(self, version: int) -> None:
        # A warm start, a resumed run or quantization may have changed the base weights; after the
        # first publish of a job they stay the same.
        if not self._base_is_sent:
            path = await asyncio.to_thread(weight_files.publish_base, self._learner, version)
            await self._engines.load_weights(path, version)
            self._base_is_sent = True
        folder = await asyncio.to_thread(weight_files.publish_adapter, self._learner, version)
        await self._engines.load_adapter(folder, version)

    async def _send(self, version: int) -> None:
        shapes = await asyncio.to_thread(self._learner.shapes)
        await self._engines.begin_weight_update(
            version, shapes, self._transport.train.check_weights
        )
        link = self._engines.link()
        digest = await asyncio.to_thread(self._learner.send_weights, self._kind, link)
        await self._engines.finish_weight_update(version, list(shapes), digest)
