"""Transfers weights as a file, in shared memory if available."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from agentrl.policies.engines.weight_checks import stored_digest
from agentrl.weight_sync import published_weights
from agentrl.weight_sync.weight_transport import (
    PublishingLearner,
    TransportNeeds,
    Update,
    UpdatedEngines,
    WeightTransport,
)


class FileTransport(WeightTransport):
    """Transport in which the learner writes a file and every engine loads it."""

    needs = TransportNeeds(memory_copies=2)  # The old file is removed once the new one is complete.
    preference: ClassVar[int | None] = 0
    carries_adapters = True

    def __init__(self) -> None:
        self._base_is_sent = False

    async def publish(
        self, learner: PublishingLearner, engines: UpdatedEngines, update: Update
    ) -> str | None:
        """See `WeightTransport.publish`."""
        if update.adapters_only:
            await self._publish_adapter(learner, engines, update.version)
            return None
        path = await asyncio.to_thread(published_weights.publish, learner, update.version)
        await engines.load_weights(path, update.version)
        # The learner may be on another node.
        return stored_digest(path) if path.is_file() else None

    async def _publish_adapter(
        self, learner: PublishingLearner, engines: UpdatedEngines, version: int
    ) -> None:
        # A warm start, a resumed run or quantization may have changed the base weights; after the
        # first publish of a job they stay the same.
        if not self._base_is_sent:
            path = await asyncio.to_thread(published_weights.publish_base, learner, version)
            await engines.load_weights(path, version)
            self._base_is_sent = True
        folder = await asyncio.to_thread(published_weights.publish_adapter, learner, version)
        await engines.load_adapter(folder, version)
