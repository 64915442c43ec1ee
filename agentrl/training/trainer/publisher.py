"""Publishes the learner's weights to the engines."""

import asyncio

from agentrl.rollout.rollout_group import AnyRollouts
from agentrl.training.learner.learner_group import AnyLearner
from agentrl.weight_sync import weight_files
from agentrl.weight_sync.transports import WeightTransport


class Publisher:
    """Publishes the learner's weights to the engines.

    Args:
        transport: how weights get to the engines.
        learner: the source of the weights.
        rollouts: whose engines receive them.
    """

    def __init__(
        self, transport: WeightTransport, learner: AnyLearner, rollouts: AnyRollouts
    ) -> None:
        self._transport, self._learner, self._rollouts = transport, learner, rollouts
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
            await self._rollouts.load_weights(path, version)
        else:
            await self._send(version)

    async def make_room(self) -> None:
        """Put engines to sleep before the learner computes, if they share its GPU."""
        if self._sleeps:
            await self._rollouts.sleep()

    async def _publish_adapter(self, version: int) -> None:
        # A warm start, a resumed run or quantization may have changed the base weights; after the
        # first publish of a job they stay the same.

        if not self._base_is_sent:
            path = await asyncio.to_thread(weight_files.publish_base, self._learner, version)
            await self._rollouts.load_weights(path, version)
            self._base_is_sent = True
        folder = await asyncio.to_thread(weight_files.publish_adapter, self._learner, version)
        await self._rollouts.load_adapter(folder, version)

    async def _send(self, version: int) -> None:
        shapes = await asyncio.to_thread(self._learner.shapes)
        await self._rollouts.begin_weight_update(
            version, shapes, self._transport.train.check_weights
        )
        link = self._rollouts.link()
        digest = await asyncio.to_thread(self._learner.send_weights, self._kind, link)
        await self._rollouts.finish_weight_update(version, list(shapes), digest)
