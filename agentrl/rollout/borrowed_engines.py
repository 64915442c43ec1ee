"""Play with the engines of other processes."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.cluster import ray_cluster
from agentrl.errors import EngineError, WorkerLost
from agentrl.policies.engines.engine import EngineSettings, Sampling, TokenEngine
from agentrl.types import Prompt, Reply


class BorrowedEngines(TokenEngine):
    """Engines of other workers, which also start them and load their weights.

    Only prompts and replies cross the network. A prompt goes to the engine with the fewest
    unanswered prompts of this worker, and to another one if that dies.

    Args:
        actors: Ray handles of `RolloutActor`.
        deadline_s: for a reply.
        start_deadline_s: for the engines to start.
    """

    def __init__(self, actors: Sequence[Any], deadline_s: float, start_deadline_s: float) -> None:
        super().__init__(EngineSettings(deadline_s=deadline_s, start_deadline_s=start_deadline_s))
        self._unanswered: dict[Any, int] = {}
        self.use(actors)

    def use(self, actors: Sequence[Any]) -> None:
        """Play with these engines from now on."""
        self._unanswered = {actor: self._unanswered.get(actor, 0) for actor in actors}

    @property
    def is_alive(self) -> bool:
        """See Engine.is_alive."""
        return bool(self._unanswered)

    async def start(self) -> None:
        """See Engine.start."""
        start_s = self.settings.start_deadline_s
        await asyncio.gather(*(self._call(a, start_s, "start_engine") for a in self._unanswered))

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """See TokenEngine.generate."""
        while self._unanswered:
            actor = min(self._unanswered, key=self._unanswered.__getitem__)
            self._unanswered[actor] += 1
            try:
                deadline_s = self.settings.deadline_s
                reply: Reply = await self._call(actor, deadline_s, "generate", prompt, sampling)
                return reply
            except WorkerLost:
                self._unanswered.pop(actor, None)
            finally:
                if actor in self._unanswered:
                    self._unanswered[actor] -= 1
        raise EngineError("all engines have died")

    async def _call(self, actor: Any, deadline_s: float, method: str, *arguments: Any) -> Any:
        reference = actor.call.remote(method, *arguments)
        return await ray_cluster.await_result(reference, "an engine", deadline_s)

    async def load_weights(self, path: Path, version: int) -> None:
        """Always an error: see the class."""
        raise EngineError("borrowed engines get their weights from the workers that have them")

    async def close(self) -> None:
        """Does nothing: see the class."""
