"""Publishes the learner's weights to the engines."""

import logging
from collections.abc import Awaitable
from typing import Protocol

from agentrl.weight_sync.transport_choice import TransportChoice
from agentrl.weight_sync.weight_transport import PublishingLearner, Update, UpdatedEngines

log = logging.getLogger(__name__)


class SleepingEngines(UpdatedEngines, Protocol):
    """Interface of the engines for the publisher."""

    def sleep(self) -> Awaitable[None]:
        """Free the GPU's memory until the next update."""


class Publisher:
    """Publishes the learner's weights to the engines."""

    def __init__(
        self, choice: TransportChoice, learner: PublishingLearner, engines: SleepingEngines
    ) -> None:
        self._choice, self._learner, self._engines = choice, learner, engines
        self._name = choice.transport()
        self._transport = choice.transport_class()()
        self.sleeps = choice.sleeps()
        """Whether the engines release their GPU's memory while the learner computes."""

    async def publish(self, version: int) -> None:
        """Update all engines, so that everything sampled afterwards uses the learner's weights."""
        update = Update(
            version=version,
            transport=self._name,
            checked=self._choice.train.check_weights,
            adapters_only=self._choice.serves_adapters,
        )
        digest = await self._transport.publish(self._learner, self._engines, update)
        if digest is not None:
            log.info("published the weights of version %d, checksum %s", version, digest)

    async def make_room(self) -> None:
        """Put engines to sleep before the learner computes, if they share its GPU."""
        if self.sleeps:
            await self._engines.sleep()
