"""What the learner has learned, on its way to the engines."""

import asyncio

from agentrl.config import Config
from agentrl.rollout.rollout_group import AnyRollouts
from agentrl.training.learner.learner_group import AnyLearner
from agentrl.weight_sync import transports, weight_files


class Publisher:
    """Gives engines new weights, in the way that the job has chosen.

    Args:
        config: the whole job's.
        learner: whose weights.
        rollouts: whose engines.
    """

    def __init__(self, config: Config, learner: AnyLearner, rollouts: AnyRollouts) -> None:
        self._config, self._learner, self._rollouts = config, learner, rollouts
        self._kind = transports.chosen(config)
        self._sleeps = transports.sleeps(config)
        self._base_is_sent = False

    async def publish(self, version: int) -> None:
        """Let everything that is sampled from now on come from the learner's weights.

        Raises:
            EngineError: an engine refused them.
            LearnerError: the learner failed.
        """
        if transports.serves_adapters(self._config):
            await self._publish_adapter(version)
        elif self._kind == "file":
            path = await asyncio.to_thread(weight_files.publish, self._learner, version)
            await self._rollouts.load_weights(path, version)
        else:
            await self._send(version)

    async def make_room(self) -> None:
        """Before the learner works: let engines leave it the GPU, where they share one."""
        if self._sleeps:
            await self._rollouts.sleep()

    async def _publish_adapter(self, version: int) -> None:
        # A warm start, a resumed run or 4 bits may have changed what the adapters are added to;
        # after the first publish of a job nothing does.
        if not self._base_is_sent:
            path = await asyncio.to_thread(weight_files.publish_base, self._learner, version)
            await self._rollouts.load_weights(path, version)
            self._base_is_sent = True
        folder = await asyncio.to_thread(weight_files.publish_adapter, self._learner, version)
        await self._rollouts.load_adapter(folder, version)

    async def _send(self, version: int) -> None:
        shapes = await asyncio.to_thread(self._learner.shapes)
        await self._rollouts.receive(version, shapes, self._config.train.check_weights)
        link = self._rollouts.link()
        digest = await asyncio.to_thread(self._learner.send_weights, self._kind, link)
        await self._rollouts.received(version, list(shapes), digest)
