"""The engines of rollout workers in Ray actors, and their weights."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.cluster import ray_cluster
from agentrl.cluster.reservation import SharedPath
from agentrl.errors import ClusterError, EngineError, WorkerLost
from agentrl.policies.engines.engine import TokenEngine
from agentrl.policies.open_model import engine_class
from agentrl.rollout.workers.rollout_actor import ActorStarter
from agentrl.rollout.workers.worker_supervisor import Call, SupervisedWorker, WorkerSupervisor
from agentrl.weight_sync.engine_link import EngineLink

log = logging.getLogger(__name__)


class EngineActors:
    """All engines of a job; one that is replaced gets the current weights.

    Args:
        starter: starts the actors.
    """

    def __init__(self, starter: ActorStarter) -> None:
        self._starter, self._workers = starter, WorkerSupervisor(starter)
        self._updating: list[tuple[SupervisedWorker, Any]] = []
        """The workers, and their actors, that receive the weights that the learner sends."""
        self._files: dict[str, tuple[Path, int]] = {}
        """The methods that load the current weights, with their arguments."""
        self._streams = False
        """Whether the learner sends weights to the engines directly, without a file."""
        self._uses_engines = False
        self._is_awake = asyncio.Event()
        self._is_awake.set()

    async def start(self) -> None:
        """See RolloutWorker.start."""
        await self._workers.start(self._bring_up_to_date)

    @property
    def num_engines(self) -> int:
        """Engines of the job, also of workers that are being replaced."""
        return len(self._workers.engines)

    async def start_engine(self) -> None:
        """See RolloutWorker.start_engine."""
        self._uses_engines = True
        await self._call_all(lambda worker: worker.actor.call.remote("start_engine"))

    def borrow(self) -> TokenEngine:
        """All engines as one, for prompts of this process; after `start_engine`."""
        return self._workers.borrow()

    async def sleep(self) -> None:
        """See RolloutWorker.sleep."""
        self._is_awake.clear()
        await self._call_all(lambda worker: worker.actor.call.remote("sleep"))

    async def load_weights(self, path: Path, version: int) -> None:
        """See RolloutWorker.load_weights; rank 0 has written the file on its node."""
        await self._load("load_weights", path, version)

    async def load_adapter(self, folder: Path, version: int) -> None:
        """See RolloutWorker.load_adapter; rank 0 has written the folder on its node."""
        await self._load("load_adapter", folder, version)

    async def _load(self, method: str, path: Path, version: int) -> None:
        self._files[method] = (path, version)
        self._is_awake.set()
        shared, node_of = await self._share(path), self._workers.node_of
        await self._call_all(lambda w: w.actor.call.remote(method, shared.on(node_of(w)), version))

    async def _call_all(self, call: Call) -> None:
        await self._workers.each(self._workers.engines, call)
        self._workers.check_left()

    async def _share(self, path: Path) -> SharedPath:
        """A file that rank 0 has written on its node, on the nodes of the engines."""
        reservation = self._starter.reservation
        ranks = reservation.layout.ranks
        return await asyncio.to_thread(reservation.share, path, ranks[0].node if ranks else None)

    async def _bring_up_to_date(self, worker: SupervisedWorker, actor: Any) -> bool:
        """Give a new actor the current weights.

        Returns:
            Whether it has them: those that the learner sends come with the next update.
        """

        async def call(method: str, *arguments: Any) -> None:
            reference = actor.call.remote(method, *arguments)
            await ray_cluster.await_result(reference, worker.name, deadline_s)

        node, deadline_s = self._workers.node_of(worker), self._starter.start_s
        loaded: dict[str, tuple[Path, int]] | None = None
        while loaded != self._files:  # new ones may be published meanwhile
            loaded = dict(self._files)
            try:
                for method, (path, version) in loaded.items():
                    await call(method, (await self._share(path)).on(node), version)
                if self._uses_engines:
                    await self._is_awake.wait()
                    await call("start_engine")
                if not self._is_awake.is_set():
                    await call("sleep")
            except (EngineError, ClusterError):
                if loaded == self._files:
                    raise
        return not self._streams

    async def begin_weight_update(
        self, version: int, shapes: Mapping[str, Sequence[int]], checked: bool
    ) -> None:
        """See RolloutWorker.begin_weight_update."""
        self._streams = self._uses_engines = True
        self._is_awake.set()
        engines = self._workers.engines
        if all(worker.actor is None for worker in engines):
            await asyncio.gather(*filter(None, [worker.replacement for worker in engines]))
        asked: dict[SupervisedWorker, Any] = {}

        def begin(worker: SupervisedWorker) -> Any:
            asked[worker] = worker.actor
            return worker.actor.call.remote("begin_weight_update", version, shapes, checked)

        begun = await self._workers.each(engines, begin)
        self._updating = [(w, asked[w]) for w in begun if w.actor is asked[w]]
        if not self._updating:
            raise self._workers.all_lost()

    async def finish_weight_update(
        self, version: int, names: Sequence[str], digest: str | None
    ) -> None:
        """See RolloutWorker.finish_weight_update."""
        await self._workers.each(
            [worker for worker, actor in self._updating if worker.actor is actor],
            lambda w: w.actor.call.remote("finish_weight_update", version, names, digest),
        )
        for worker, actor in self._updating:
            worker.is_current = worker.actor is actor
        await self._workers.lend()
        self._workers.check_left()

    def link(self) -> EngineLink:
        """A link from any process of the cluster to the actors that `begin_weight_update` found."""
        settings, actors = self._starter.plan.rollout, [actor for _, actor in self._updating]
        workers = engine_class(settings).num_workers(settings.engine_kwargs)
        return RayLink(actors, workers, self._starter.plan.message_s)


class RayLink(EngineLink):
    """Link to the engines of rollout actors; those that die are left out.

    Args:
        actors: their handles.
        workers_per_engine: see `EngineLink`.
        deadline_s: for each message.
    """

    def __init__(self, actors: Sequence[Any], workers_per_engine: int, deadline_s: float) -> None:
        super().__init__(len(actors), workers_per_engine)
        self._actors, self._deadline_s = dict(enumerate(actors)), deadline_s
        self.members = tuple(actor._actor_id.hex() for actor in actors)

    def send_each(self, messages: Sequence[Any]) -> None:
        """See `EngineLink.send_each`.

        Raises:
            WorkerLost: all of them have died.
        """
        calls = {
            number: actor.call.remote("receive_weights", messages[number])
            for number, actor in self._actors.items()
        }
        asyncio.run(self._wait_for(calls))

    async def _wait_for(self, calls: Mapping[int, Any]) -> None:
        async def wait(number: int, call: Any) -> None:
            try:
                await ray_cluster.await_result(call, f"engine {number}", self._deadline_s)
            except WorkerLost as error:
                log.warning("%s; it no longer receives weights", error)
                del self._actors[number]
                if not self._actors:
                    raise

        await asyncio.gather(*(wait(number, call) for number, call in calls.items()))
