"""Play episodes in Ray actors with their engines."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from agentrl.cluster.ray_actor_calls import await_result
from agentrl.cluster.reservation import SharedPath
from agentrl.errors import ClusterError, EngineError, WorkerLost
from agentrl.policies.engines.engine import Sampling, TokenEngine
from agentrl.policies.open_engine import engine_class
from agentrl.rollout.collector import CollectionProgress, Collector, FailureLog
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.rollout.run_episode import EpisodeRequest
from agentrl.rollout.workers.actor_starter import ActorStarter
from agentrl.rollout.workers.worker_supervisor import Call, SupervisedWorker, WorkerSupervisor
from agentrl.types import Prompt, Reply, ScoredEpisode
from agentrl.weight_sync.engine_link import EngineLink

log = logging.getLogger(__name__)

_CHECK_S = 1.0
"""Seconds between checks, during a collection, that any workers are left."""


class RolloutWorkerGroup:
    """The `Rollouts` of Ray actors, which take the next request when they have room.

    If a worker dies, others play its unfinished episodes and it is replaced; see
    `WorkerSupervisor`.

    Each worker plays with its own engine, on phones of its node if phones are needed. If the nodes
    with phones are not exactly the nodes with engines, a worker on each node with phones plays
    instead, using all engines.
    """

    def __init__(self, starter: ActorStarter) -> None:
        self._starter, self._workers = starter, WorkerSupervisor(starter)
        self.engines = EngineActors(starter, self._workers)
        self.progress, self._failures = CollectionProgress(), FailureLog()

    async def start(self) -> None:
        """See Rollouts.start."""
        await self._workers.start(self.engines.bring_up_to_date)

    def borrow(self) -> TokenEngine:
        """Return all started engines as one, for prompts of this process."""
        return self._workers.borrow()

    def worker_metrics(self) -> dict[str, float]:
        """See Rollouts.worker_metrics."""
        playing = sum(worker.is_current for worker in self._workers.players)
        replaced = self._workers.num_replaced
        return {"workers": float(playing), "replaced_workers": float(replaced)}

    async def collect(
        self, requests: Sequence[EpisodeRequest], player: str | None = None, greedy: bool = False
    ) -> list[ScoredEpisode]:
        """See Rollouts.collect."""
        self.engines.are_used |= player is None
        self.progress, players = CollectionProgress(), self._workers.players
        refills = self._starter.plan.settings.rollout.max_refills * len(players)
        collector = Collector(requests, refills, self.progress, self._failures)
        collecting = asyncio.create_task(collector.collect_from(players, player, greedy))
        try:
            while not (await asyncio.wait({collecting}, timeout=_CHECK_S))[0]:
                self._workers.check_left()
            return collecting.result()
        finally:
            collecting.cancel()
            await asyncio.wait({collecting})

    async def finish(self) -> None:
        """See Rollouts.finish."""
        workers = self._workers
        await workers.each(workers.everybody, lambda worker: worker.actor.finish.remote())
        await workers.stop()
        await self._starter.close_phones()

    async def switch(self, plan: RolloutPlan, run: Path | None) -> None:
        """See Rollouts.switch."""
        await self.finish()
        await self._starter.switch(plan, run)
        self.progress, self._failures = CollectionProgress(), FailureLog()
        await self._workers.switch()

    async def close(self) -> None:
        """See Rollouts.close; the actors are closed before the shared phone pools."""
        try:
            await self._workers.close()
        finally:
            await self._starter.close()


class EngineActors:
    """The `Engines` of a job, each in the actor of a rollout worker."""

    def __init__(self, starter: ActorStarter, workers: WorkerSupervisor) -> None:
        self._starter, self._workers = starter, workers
        self._updating: list[tuple[SupervisedWorker, Any]] = []
        """Workers, with their actors, that are receiving weights from the learner."""
        self._weights: tuple[Path, int] | None = None
        """File and version of the current weights."""
        self._adapter: tuple[Path, int] | None = None
        """Folder and version of the current adapters."""
        self._streams = False
        """Whether the learner sends weights directly to the engines, without a file."""
        self.are_used = False
        """Whether the engines are in use, so that replacement actors start theirs immediately."""
        self._is_awake = asyncio.Event()
        self._is_awake.set()

    @property
    def count(self) -> int:
        """See Engines.count."""
        return len(self._workers.engines)

    async def start(self) -> None:
        """See Engines.start."""
        self.are_used = True
        await self._call_all(lambda worker: worker.actor.start_engine.remote())

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """See Engines.generate."""
        return await self._all_engines.generate(prompt, sampling)

    @cached_property
    def _all_engines(self) -> TokenEngine:
        return self._workers.borrow()

    async def sleep(self) -> None:
        """See EngineHost.sleep."""
        self._is_awake.clear()
        await self._call_all(lambda worker: worker.actor.sleep.remote())

    async def load_weights(self, path: Path, version: int) -> None:
        """See EngineHost.load_weights; rank 0 has written the file on its node."""
        self._weights = (path, version)
        self._is_awake.set()
        shared, node_of = await self._share(path), self._workers.node_of
        await self._call_all(lambda w: w.actor.load_weights.remote(shared.on(node_of(w)), version))

    async def load_adapter(self, folder: Path, version: int) -> None:
        """See EngineHost.load_adapter; rank 0 has written the folder on its node."""
        self._adapter = (folder, version)
        self._is_awake.set()
        shared, node_of = await self._share(folder), self._workers.node_of
        await self._call_all(lambda w: w.actor.load_adapter.remote(shared.on(node_of(w)), version))

    async def _call_all(self, call: Call) -> None:
        await self._workers.each(self._workers.engines, call)
        self._workers.check_left()

    async def _share(self, path: Path) -> SharedPath:
        """Make a path that rank 0 wrote on its node available on the nodes of the engines."""
        reservation = self._starter.reservation
        ranks = reservation.layout.ranks
        return await asyncio.to_thread(reservation.share, path, ranks[0].node if ranks else None)

    async def bring_up_to_date(self, worker: SupervisedWorker, actor: Any) -> bool:
        """Give a new actor the current weights.

        Returns:
            Whether the actor has the current weights; directly sent weights only come with the
            next update.
        """

        async def result(call: Any) -> None:
            await await_result(call, worker.name, self._starter.start_s)

        node = self._workers.node_of(worker)
        is_current = False
        while not is_current:
            weights, adapter = given = self._weights, self._adapter
            try:
                for load, published in (
                    (actor.load_weights, weights), (actor.load_adapter, adapter)
                ):  # fmt: skip
                    if published is not None:
                        path, version = published
                        await result(load.remote((await self._share(path)).on(node), version))
                if self.are_used:
                    await self._is_awake.wait()
                    await result(actor.start_engine.remote())
                if not self._is_awake.is_set():
                    await result(actor.sleep.remote())
            # An older version's files may be gone because a newer version was published meanwhile.
            except (EngineError, ClusterError):
                if given == (self._weights, self._adapter):
                    raise
            is_current = given == (self._weights, self._adapter)
        return not self._streams

    async def begin_weight_update(
        self, version: int, shapes: Mapping[str, Sequence[int]], checked: bool
    ) -> None:
        """See EngineHost.begin_weight_update."""
        self._streams = self.are_used = True
        self._is_awake.set()
        engines = self._workers.engines
        # If no engine is left, wait for replacements.
        if all(worker.actor is None for worker in engines):
            await asyncio.gather(*filter(None, [worker.replacement for worker in engines]))
        asked: dict[SupervisedWorker, Any] = {}

        def begin(worker: SupervisedWorker) -> Any:
            asked[worker] = worker.actor
            return worker.actor.begin_weight_update.remote(version, shapes, checked)

        begun = await self._workers.each(engines, begin)
        self._updating = [(w, asked[w]) for w in begun if w.actor is asked[w]]
        if not self._updating:
            raise self._workers.all_lost()

    async def finish_weight_update(
        self, version: int, names: Sequence[str], digest: str | None
    ) -> None:
        """See EngineHost.finish_weight_update."""
        await self._workers.each(
            [worker for worker, actor in self._updating if worker.actor is actor],
            lambda w: w.actor.finish_weight_update.remote(version, names, digest),
        )
        for worker, actor in self._updating:
            worker.is_current = worker.actor is actor
        await self._workers.lend()
        self._workers.check_left()

    def link(self) -> EngineLink:
        """Return a link from any process of the cluster to the actors of the current update."""
        settings, actors = self._starter.plan.settings, [actor for _, actor in self._updating]
        rollout = settings.rollout
        workers = engine_class(rollout).num_workers(rollout.engine_kwargs)
        return RayLink(actors, workers, settings.train.deadline_s)


class RayLink(EngineLink):
    """Link to the engines of rollout actors, which skips actors that have died."""

    def __init__(self, actors: Sequence[Any], workers_per_engine: int, deadline_s: float) -> None:
        super().__init__(len(actors), workers_per_engine)
        self._actors, self._deadline_s = dict(enumerate(actors)), deadline_s
        self.members = tuple(actor._actor_id.hex() for actor in actors)

    def send_each(self, messages: Sequence[Any]) -> None:
        """See `EngineLink.send_each`.

        Raises:
            WorkerLost: all actors have died.
        """
        calls = {
            number: actor.receive_weights.remote(messages[number])
            for number, actor in self._actors.items()
        }
        asyncio.run(self._wait_for(calls))

    async def _wait_for(self, calls: Mapping[int, Any]) -> None:
        async def wait(number: int, call: Any) -> None:
            try:
                await await_result(call, f"engine {number}", self._deadline_s)
            except WorkerLost as error:
                log.warning("%s; it no longer receives weights", error)
                del self._actors[number]
                if not self._actors:
                    raise

        await asyncio.gather(*(wait(number, call) for number, call in calls.items()))
