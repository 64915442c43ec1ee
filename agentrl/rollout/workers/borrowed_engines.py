"""Generate replies with the engines of other processes."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.cluster.ray_actor_calls import await_result
from agentrl.errors import EngineError, WorkerLost
from agentrl.event_loop import off_the_clock
from agentrl.policies.engines.engine import EngineSettings, Sampling, TokenEngine
from agentrl.types import Prompt, Reply

_WHO = "an engine"


class BorrowedEngines(TokenEngine):
    """Engines owned by other workers, which also start them and load their weights.

    Only prompts and replies cross the network. A prompt goes to the engine with the fewest
    unanswered prompts of this worker, and to another engine if that dies. If all engines have died,
    prompts wait for replacements.
    """

    def __init__(self, actors: Sequence[Any], deadline_s: float, start_deadline_s: float) -> None:
        super().__init__(EngineSettings(deadline_s=deadline_s, start_deadline_s=start_deadline_s))
        self._unanswered: dict[Any, int] = {}
        self._changed = asyncio.Event()
        self.use(actors)

    def use(self, actors: Sequence[Any]) -> None:
        """Use these engines from now on."""
        self._unanswered = {actor: self._unanswered.get(actor, 0) for actor in actors}
        self._changed.set()

    async def start(self) -> None:
        """See Engine.start."""

        async def start(actor: Any) -> None:
            # If a worker has died, its replacement starts its own engine.
            with contextlib.suppress(WorkerLost):
                deadline_s = self.settings.start_deadline_s
                await await_result(actor.start_engine.remote(), _WHO, deadline_s)

        await asyncio.gather(*map(start, self._unanswered))

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """See TokenEngine.generate."""
        while True:
            # The episode is not responsible for this wait, so its deadline does not count it.
            with off_the_clock():
                await self._wait_for_engines()
            actor = min(self._unanswered, key=self._unanswered.__getitem__)
            self._unanswered[actor] += 1
            try:
                call, deadline_s = actor.generate.remote(prompt, sampling), self.settings.deadline_s
                reply: Reply = await await_result(call, _WHO, deadline_s)
                return reply
            except WorkerLost:
                self._unanswered.pop(actor, None)
            finally:
                if actor in self._unanswered:
                    self._unanswered[actor] -= 1

    async def _wait_for_engines(self) -> None:
        try:
            async with asyncio.timeout(self.settings.start_deadline_s):
                while not self._unanswered:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise EngineError("all engines have died, and none has been replaced") from None

    async def load_weights(self, path: Path, version: int) -> None:
        """Raise an error: the owners load the weights."""
        raise EngineError("borrowed engines get their weights from the workers that own them")

    async def close(self) -> None:
        """Do nothing: the owners close the engines."""
