"""A rollout worker in a Ray actor."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.cluster.ray_actor_logs import redirect_output, serials_in
from agentrl.errors import WorkerLost
from agentrl.policies.engines.engine import Sampling
from agentrl.rollout.nodes.job_files import JobOnNode
from agentrl.rollout.nodes.run_folder_on_nodes import OpenedRun, RecordedRun
from agentrl.rollout.nodes.shared_phone_pool import SharedPhones
from agentrl.rollout.rollout_plan import RolloutPlan, plan_rollouts
from agentrl.rollout.run_episode import EpisodeRequest
from agentrl.rollout.workers.borrowed_engines import BorrowedEngines
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.types import Prompt, Reply, ScoredEpisode

_WATCH_S = 1.0
"""Seconds between health checks of an engine."""


class RolloutActor:
    """A `RolloutWorker` and its `EngineHost`, in a separate process."""

    def __init__(
        self,
        name: str,
        plays: bool,
        job: JobOnNode,
        folder: Path | None,
        run: RecordedRun | None,
        share: tuple[int, int],
        phones: SharedPhones | None = None,
        version: int = 0,
        engines: Sequence[Any] | None = None,
    ) -> None:
        self._name, self._plays = name, plays
        self._watches = 0
        self._run: OpenedRun | None = None
        plan, here = self._open(job, run)
        self._borrowed: BorrowedEngines | None = None
        if engines is not None:
            deadlines = plan.settings.rollout.deadline_s, plan.settings.rollout.start_deadline_s
            self._borrowed = BorrowedEngines(engines, *deadlines)
        self._rollouts = RolloutWorker(
            plan, folder, here, share, phones, version, self._borrowed, job.digest
        )
        self._engines = self._rollouts.engines

    def _open(self, job: JobOnNode, run: RecordedRun | None) -> tuple[RolloutPlan, Path | None]:
        """Return the plan and the folder to record into; redirect this process's output there."""
        if self._run is not None:
            self._run.close()
        self._run = None if run is None else run.open()
        here = None if self._run is None else self._run.folder
        if here is not None:
            redirect_output(here, self._name, serials_in(job.tree))
        return plan_rollouts(job.open()), here

    async def start(self) -> tuple[int, int]:
        """See Rollouts.start; return no room if this worker does not play."""
        return await self._rollouts.start() if self._plays else (0, 0)

    async def watch(self) -> None:
        """Run until the engine or this process dies, or until the next call.

        Raises:
            WorkerLost: the engine has died.
        """
        self._watches += 1
        own = self._watches
        while own == self._watches:
            if self._engines.is_dead:
                raise WorkerLost("its engine died")
            await asyncio.sleep(_WATCH_S)

    async def ping(self) -> None:
        """Return immediately, unless this process hangs."""

    async def switch(
        self, plays: bool, job: JobOnNode, run: RecordedRun | None, phones: SharedPhones | None
    ) -> tuple[int, int]:
        """See Rollouts.switch; return no room if this worker does not play."""
        self._plays, opened = plays, self._open(job, run)
        return await self._rollouts.switch(*opened, phones, job.digest) if plays else (0, 0)

    async def borrow(self, engines: Sequence[Any]) -> None:
        """Use the engines of these actors from now on."""
        assert self._borrowed is not None, "it has no engine of its own"
        self._borrowed.use(engines)

    async def use_phones(self, phones: SharedPhones) -> bool:
        """See RolloutWorker.use_phones."""
        return await self._rollouts.use_phones(phones)

    async def finish(self) -> None:
        """See Rollouts.finish."""
        await self._rollouts.finish()
        if self._run is not None:
            await asyncio.to_thread(self._run.flush)

    async def play_and_deliver(
        self, request: EpisodeRequest, player: str | None, greedy: bool
    ) -> ScoredEpisode:
        """Play, score and record an episode; return it once it is in the run's folder."""
        scored = await self._rollouts.play_request(request, player, greedy)
        # A recording still in the spool would be lost with this node.
        if self._run is not None and self._run.is_spooled:
            await self._rollouts.flush()
            await asyncio.to_thread(self._run.flush)
        return scored

    async def start_engine(self) -> None:
        """See Engines.start."""
        await self._engines.start()

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """See EngineHost.generate."""
        return await self._engines.generate(prompt, sampling)

    async def sleep(self) -> None:
        """See EngineHost.sleep."""
        await self._engines.sleep()

    async def load_weights(self, path: Path, version: int) -> None:
        """See EngineHost.load_weights."""
        await self._engines.load_weights(path, version)

    async def load_adapter(self, folder: Path, version: int) -> None:
        """See EngineHost.load_adapter."""
        await self._engines.load_adapter(folder, version)

    async def begin_weight_update(
        self, version: int, shapes: Mapping[str, Sequence[int]], checked: bool
    ) -> None:
        """See EngineHost.begin_weight_update."""
        await self._engines.begin_weight_update(version, shapes, checked)

    async def receive_weights(self, message: Any) -> None:
        """See EngineHost.receive_weights."""
        await self._engines.receive_weights(message)

    async def finish_weight_update(
        self, version: int, names: Sequence[str], digest: str | None
    ) -> None:
        """See EngineHost.finish_weight_update."""
        await self._engines.finish_weight_update(version, names, digest)

    async def close(self) -> None:
        """See Rollouts.close."""
        try:
            await self._rollouts.close()
        finally:
            if self._run is not None:
                await asyncio.to_thread(self._run.close)
