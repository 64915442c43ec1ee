"""Rollouts in this process or in Ray actors, with the same methods."""

import asyncio
import functools
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from agentrl import env
from agentrl.cluster import ray_cluster
from agentrl.cluster.placement import Layout, plan_layout
from agentrl.cluster.reservation import Reservation, find_nodes
from agentrl.config import Config, RolloutConfig
from agentrl.errors import EngineError
from agentrl.policies.engines.engine import EngineSettings, Sampling, TokenEngine
from agentrl.policies.open_model import engine_class
from agentrl.rollout.collector import CollectionProgress
from agentrl.rollout.job_files import JobFiles, JobOnNode
from agentrl.rollout.phone_hosts import find_phone_hosts, nodes_of_hosts
from agentrl.rollout.recorded_run import OpenedRun, RecordedRun, RunOnNodes
from agentrl.rollout.rollout_worker import RolloutWorker
from agentrl.rollout.run_episode import EpisodeRequest
from agentrl.rollout.shared_phone_pool import PhonePoolActor, SharedPhones
from agentrl.types import Prompt, Reply, ScoredEpisode
from agentrl.weight_sync.engine_link import EngineLink

log = logging.getLogger(__name__)

P = ParamSpec("P")

_CLOSE_S = 30.0
"""For an actor to close its engine and phones; then it is killed together with them."""

_PHONE_POOL = "the shared phone pool"


def _on_all_workers(
    method: Callable[Concatenate[RolloutWorker, P], Awaitable[None]],
) -> Callable[Concatenate["RolloutWorkerGroup", P], Awaitable[None]]:
    """The same call on every worker."""

    @functools.wraps(method)
    async def call(group: "RolloutWorkerGroup", /, *args: P.args, **kwargs: P.kwargs) -> None:
        await group.call_all(method.__name__, *args, **kwargs)

    return call


class RolloutWorkerGroup:
    """Rollout workers in Ray actors; episode groups are distributed round-robin.

    Each plays with its own engine, on phones of its node if it needs any. If the nodes with phones
    are not exactly those with engines, a worker on each node with phones plays instead, with the
    engines of all.

    Args:
        actors: of `RolloutActor`, one for each engine.
        settings: deadlines and the engine.
        publish_deadline_s: for one message of the learner to an engine.
        phones: the pool that the workers of a node share, by the node's id; empty if each has its
            own.
        reservation: where the workers are.
        run: what they record.
        owns_reservation: whether to release it at the end.
        files: the configuration, and what it names.
        folder: the model's; None if only scripted players or a server's model play.
    """

    def __init__(
        self,
        actors: Sequence[Any],
        settings: RolloutConfig,
        publish_deadline_s: float,
        phones: Mapping[str, SharedPhones],
        reservation: Reservation,
        run: RunOnNodes,
        *,
        owns_reservation: bool,
        files: JobFiles,
        folder: Path | None,
    ) -> None:
        self._actors, self._folder = actors, folder
        self._others: list[Any] = []
        """The workers that play, if they are not the actors."""
        self._phones, self._run = dict(phones), run
        self._reservation, self._owns_reservation = reservation, owns_reservation
        self._files, self._settings = files, settings
        self._publish_deadline_s = publish_deadline_s
        self._start_s = settings.start_deadline_s
        self._in_flight = [1] * len(actors)
        """Number of concurrent episodes of each player."""

    async def start(self) -> None:
        """See RolloutWorker.start."""
        await self._open_players()
        self._in_flight = await self._await_all([p.call.remote("start") for p in self._players])

    @property
    def _players(self) -> Sequence[Any]:
        return self._others or self._actors

    async def _open_players(self) -> None:
        if _plays_apart(self._phones, self._reservation.layout):
            self._others = await asyncio.to_thread(
                _start_players, self._files, self._folder, self._phones, self._actors,
                self._reservation, self._run,
            )  # fmt: skip

    async def finish(self) -> None:
        """See RolloutWorker.finish."""
        await self._await_all([one.finish.remote() for one in (*self._others, *self._actors)])
        await self._close_players()
        await self._close_phones()

    async def _close_players(self) -> None:
        """Close the workers that `_open_players` has started."""
        others, self._others = self._others, []
        await asyncio.gather(
            *(_close_and_kill(one, f"player {k}", self._close_s) for k, one in enumerate(others))
        )

    async def switch(self, config: Config, run: Path | None) -> None:
        """See RolloutWorker.switch."""
        await self.finish()
        layout = self._reservation.layout
        self._run.close()
        self._run = await asyncio.to_thread(RunOnNodes, run, self._reservation)
        self._files = files = await asyncio.to_thread(JobFiles, config, self._reservation)
        self._phones = await _shared_phones(config, files, self._run, layout)
        if _plays_apart(self._phones, layout):
            calls = [
                actor.reopen.remote(files.on(slot.node), self._run.on(slot.node))
                for actor, slot in zip(self._actors, layout.engines, strict=True)
            ]
            await self._await_all(calls)
            await self.start()
            return
        calls = [
            actor.switch.remote(
                files.on(slot.node), self._run.on(slot.node), self._phones.get(slot.node.id)
            )
            for actor, slot in zip(self._actors, layout.engines, strict=True)
        ]
        self._in_flight = await self._await_all(calls)

    async def _await_all(self, calls: Sequence[Any]) -> list[Any]:
        """The results of calls to rollout actors."""
        return await asyncio.gather(
            *(
                ray_cluster.await_result(call, f"rollout actor {k}", self._start_s)
                for k, call in enumerate(calls)
            )
        )

    async def collect(
        self, requests: Sequence[EpisodeRequest], player: str | None = None, greedy: bool = False
    ) -> list[ScoredEpisode]:
        """See RolloutWorker.collect."""
        shares = {k: share for k, share in enumerate(self._distribute(requests)) if share}
        played = await asyncio.gather(
            *(self._collect(k, share, player, greedy) for k, share in shares.items())
        )
        found: dict[EpisodeRequest, ScoredEpisode] = {}
        for share, episodes in zip(shares.values(), played, strict=True):
            found |= zip(share, episodes, strict=True)
        return [found[request] for request in requests]

    def _distribute(self, requests: Sequence[EpisodeRequest]) -> list[list[EpisodeRequest]]:
        count = len(self._players)
        return [[t for t in requests if t.group % count == k] for k in range(count)]

    async def _collect(
        self, number: int, share: Sequence[EpisodeRequest], player: str | None, greedy: bool
    ) -> list[ScoredEpisode]:
        deadline_s = collect_deadline_s(len(share), self._in_flight[number], self._settings)
        call = self._players[number].call.remote("collect", share, player, greedy)
        episodes: list[ScoredEpisode] = await ray_cluster.await_result(
            call, f"rollout actor {number}", deadline_s
        )
        return episodes

    @property
    def num_engines(self) -> int:
        """Each worker has one."""
        return len(self._actors)

    start_engine = _on_all_workers(RolloutWorker.start_engine)
    begin_weight_update = _on_all_workers(RolloutWorker.begin_weight_update)
    finish_weight_update = _on_all_workers(RolloutWorker.finish_weight_update)
    sleep = _on_all_workers(RolloutWorker.sleep)

    async def load_weights(self, path: Path, version: int) -> None:
        """See RolloutWorker.load_weights; rank 0 has written the file on its node."""
        await self._load("load_weights", path, version)

    async def load_adapter(self, folder: Path, version: int) -> None:
        """See RolloutWorker.load_adapter; rank 0 has written the folder on its node."""
        await self._load("load_adapter", folder, version)

    async def _load(self, method: str, path: Path, version: int) -> None:
        layout = self._reservation.layout
        source = layout.ranks[0].node if layout.ranks else None
        shared = await asyncio.to_thread(self._reservation.share, path, source)
        await asyncio.gather(
            *(
                self._call(k, self._start_s, method, shared.on(slot.node), version)
                for k, slot in enumerate(layout.engines)
            )
        )

    def link(self) -> EngineLink:
        """A link from any process of the cluster to all actors."""
        workers = engine_class(self._settings).num_workers(self._settings.engine_kwargs)
        return RayLink(self._actors, workers, self._publish_deadline_s)

    async def call_all(self, method: str, *arguments: Any) -> None:
        """Call a method of every worker; the first failure is raised."""
        numbers = range(len(self._actors))
        await asyncio.gather(*(self._call(k, self._start_s, method, *arguments) for k in numbers))

    async def get_progress(self) -> CollectionProgress:
        """Progress of the running collection."""
        calls = [player.call.remote("get_progress") for player in self._players]
        return sum(await self._await_all(calls), start=CollectionProgress())

    async def _call(self, number: int, deadline_s: float, method: str, *arguments: Any) -> Any:
        reference = self._actors[number].call.remote(method, *arguments)
        return await ray_cluster.await_result(reference, f"rollout actor {number}", deadline_s)

    async def close(self) -> None:
        """Close the engines and phones, then the actors, and last the shared phone pool."""
        await self._close_players()
        actors = [(actor, f"rollout actor {k}") for k, actor in enumerate(self._actors)]
        await asyncio.gather(*(_close_and_kill(*one, self._close_s) for one in actors))
        await self._close_phones()
        self._run.close()
        if self._owns_reservation:
            self._reservation.release()

    async def _close_phones(self) -> None:
        pools, self._phones = self._phones, {}
        for phones in pools.values():
            await _close_and_kill(phones.actor, _PHONE_POOL, self._close_s)

    @property
    def _close_s(self) -> float:
        return min(_CLOSE_S, self._start_s)


def _plays_apart(phones: Collection[str], layout: Layout) -> bool:
    """Whether the nodes with phones, given by id, are not those with engines."""
    return bool(phones) and {*phones} != {slot.node.id for slot in layout.engines}


class RayLink(EngineLink):
    """Link to the engines of rollout actors.

    Args:
        actors: their handles.
        workers_per_engine: see `EngineLink`.
        deadline_s: for each message.
    """

    def __init__(self, actors: Sequence[Any], workers_per_engine: int, deadline_s: float) -> None:
        super().__init__(len(actors), workers_per_engine)
        self._actors, self._deadline_s = list(actors), deadline_s

    def send_each(self, messages: Sequence[Any]) -> None:
        """See `EngineLink.send_each`."""

        async def call_all() -> None:
            calls = [
                ray_cluster.await_result(
                    actor.call.remote("receive_weights", message), f"engine {k}", self._deadline_s
                )
                for k, (actor, message) in enumerate(zip(self._actors, messages, strict=True))
            ]
            await asyncio.gather(*calls)

        asyncio.run(call_all())


class BorrowedEngines(TokenEngine):
    """Engines of other workers, which also start them and load their weights.

    Only prompts and replies cross the network. A prompt goes to the engine with the fewest
    unanswered prompts of this worker.

    Args:
        actors: Ray handles of `RolloutActor`.
        deadline_s: for a reply.
        start_deadline_s: for the engines to start.
    """

    def __init__(self, actors: Sequence[Any], deadline_s: float, start_deadline_s: float) -> None:
        super().__init__(EngineSettings(deadline_s=deadline_s, start_deadline_s=start_deadline_s))
        self._actors = list(actors)
        self._unanswered = [0] * len(self._actors)

    async def start(self) -> None:
        """See Engine.start."""
        start_s = self.settings.start_deadline_s
        await asyncio.gather(
            *(self._call(k, start_s, "start_engine") for k in range(len(self._actors)))
        )

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """See TokenEngine.generate."""
        number = self._unanswered.index(min(self._unanswered))
        self._unanswered[number] += 1
        try:
            reply: Reply = await self._call(
                number, self.settings.deadline_s, "generate", prompt, sampling
            )
        finally:
            self._unanswered[number] -= 1
        return reply

    async def _call(self, number: int, deadline_s: float, method: str, *arguments: Any) -> Any:
        reference = self._actors[number].call.remote(method, *arguments)
        return await ray_cluster.await_result(reference, f"engine {number}", deadline_s)

    async def load_weights(self, path: Path, version: int) -> None:
        """Always an error: see the class."""
        raise EngineError("borrowed engines get their weights from the workers that have them")

    async def close(self) -> None:
        """Does nothing: see the class."""


async def _close_and_kill(actor: Any, who: str, deadline_s: float) -> None:
    import ray

    try:
        await ray_cluster.await_result(actor.close.remote(), who, deadline_s)
    except Exception as error:  # it is killed either way
        log.warning("closing %s: %s", who, error)
    finally:
        ray.kill(actor)


def collect_deadline_s(episodes: int, in_flight: int, settings: RolloutConfig) -> float:
    """Deadline of one actor's collection; only an actor that hangs takes longer.

    Every episode and its scoring have their own deadlines. Episodes are played in waves of
    `in_flight`; in the worst case all refills are played one after the other, for one request.

    Args:
        episodes: number of episodes to play.
        in_flight: number of concurrent episodes of the actor.
        settings: the deadlines and the maximum number of refills.

    Returns:
        Seconds, including those for the engine to start.
    """
    waves = math.ceil(episodes / in_flight) + settings.max_refills
    each_s = settings.deadline_s + settings.reward_deadline_s
    return settings.start_deadline_s + waves * each_s


class RolloutActor:
    """`RolloutWorker` in its own process.

    Args:
        name: of its log.
        tree: the configuration.
        folder: see `RolloutWorker`.
        run: the run's folder.
        share: see `RolloutWorker`.
        phones: see `RolloutWorker`.
        version: see `RolloutWorker`.
        engines: other actors, with whose engines it plays; empty if it has its own.
    """

    def __init__(
        self,
        name: str,
        job: JobOnNode,
        folder: Path | None,
        run: RecordedRun | None,
        share: tuple[int, int],
        phones: SharedPhones | None = None,
        version: int = 0,
        engines: Sequence[Any] = (),
    ) -> None:
        self._name = name
        self._run: OpenedRun | None = None
        settings, here = self._open(job, run)
        rollout = settings.rollout
        borrowed = (
            BorrowedEngines(engines, rollout.deadline_s, rollout.start_deadline_s)
            if engines
            else None
        )
        self._rollouts = RolloutWorker(
            settings, folder, here, share, phones, version, borrowed, job.digest
        )

    def _open(self, job: JobOnNode, run: RecordedRun | None) -> tuple[Config, Path | None]:
        """The configuration and the folder to record into, which gets this process's output."""
        if self._run is not None:
            self._run.close()
        self._run = None if run is None else run.open()
        here = None if self._run is None else self._run.folder
        if here is not None:
            ray_cluster.redirect_output(here, self._name, ray_cluster.serials_in(job.tree))
        return job.open(), here

    async def switch(
        self, job: JobOnNode, run: RecordedRun | None, phones: SharedPhones | None
    ) -> int:
        """See RolloutWorker.switch."""
        return await self._rollouts.switch(*self._open(job, run), phones, job.digest)

    def reopen(self, job: JobOnNode, run: RecordedRun | None) -> None:
        """Log into another run from now on; other actors play it, with the engine of this one."""
        self._open(job, run)

    async def finish(self) -> None:
        """See RolloutWorker.finish."""
        await self._rollouts.finish()
        if self._run is not None:
            await asyncio.to_thread(self._run.flush)

    async def call(self, method: str, *arguments: Any) -> Any:
        """One of the methods of `RolloutWorker`."""
        return await getattr(self._rollouts, method)(*arguments)

    async def close(self) -> None:
        """See RolloutWorker.close."""
        await self._rollouts.close()
        if self._run is not None:
            await asyncio.to_thread(self._run.close)


AnyRollouts = RolloutWorker | RolloutWorkerGroup
"""What the training loop sees of rollouts, wherever they run."""


def plan_job(config: Config, *, learns: bool) -> Layout:
    """Decide where the engines and ranks of a job run, by the nodes that it can use.

    Args:
        config: the job.
        learns: whether it has a learner.

    Raises:
        ConfigError: they do not fit.
        ClusterError: the cluster of RAY_ADDRESS cannot be joined.
    """
    rollout = config.rollout
    gpus_per_engine = engine_class(rollout).num_gpus(rollout.engine_kwargs)
    nodes = find_nodes(rollout.launcher)
    layout = plan_layout(nodes, rollout, config.train if learns else None, gpus_per_engine)
    return replace(layout, phones=nodes_of_hosts(config.devices.hosts, nodes))


def reserve(config: Config, *, learns: bool = True, with_engines: bool = True) -> Reservation:
    """Start or join Ray if the job uses it, and reserve the GPUs that the job needs.

    Args:
        config: the job.
        learns: see `plan_job`.
        with_engines: whether a model plays.

    Raises:
        ConfigError: Ray is not installed, or see `plan_job`.
        ClusterError: Ray did not start, or see `Reservation`.
    """
    if config.rollout.launcher == "ray":
        ray_cluster.join_cluster()
    layout = plan_job(config, learns=learns)
    if not with_engines:
        layout = replace(layout, engines=())
    return Reservation(layout, config.rollout.start_deadline_s)


async def open_rollouts(
    config: Config,
    folder: Path | None,
    run: Path | None,
    version: int = 0,
    reservation: Reservation | None = None,
) -> AnyRollouts:
    """Start rollouts with the launcher of the configuration.

    Args:
        config: the job; if GPUs are reserved for it, as `Layout.applied_to` returns it.
        folder: model folder; None if only scripted players or a server's model play, which
            happens in this process, except on the phones of `devices.hosts`.
        run: the run's folder; None records nothing.
        version: version of the weights in `folder`, in training steps.
        reservation: where the engines run; None reserves for them alone.

    Raises:
        ConfigError: Ray is not installed, or a phone cannot be reached.
        ClusterError: see `reserve`.
    """
    if config.rollout.launcher == "local" or (folder is None and not config.devices.hosts):
        return await _started(RolloutWorker(config, folder, run, version=version))
    owns_reservation = reservation is None
    if reservation is None:
        reservation = reserve(config, learns=False, with_engines=folder is not None)
    if reservation.layout.engines:
        config = reservation.layout.applied_to(config)
    ray = ray_cluster.join_cluster()
    slots = reservation.layout.engines
    on_nodes = await asyncio.to_thread(RunOnNodes, run, reservation)
    files = await asyncio.to_thread(JobFiles, config, reservation)
    phones = await _shared_phones(config, files, on_nodes, reservation.layout)
    actors = []
    if folder is not None:
        folders = await asyncio.to_thread(reservation.share, folder, keep=True)
        remote = ray.remote(RolloutActor)
        name = "engine" if _plays_apart(phones, reservation.layout) else "rollout"
        actors = [
            remote.options(**reservation.options(slot), max_concurrency=1000).remote(
                f"{name}{number}",
                files.on(slot.node),
                folders.on(slot.node),
                on_nodes.on(slot.node),
                (number, len(slots)),
                phones.get(slot.node.id),
                version,
            )
            for number, slot in enumerate(slots)
        ]
    group = RolloutWorkerGroup(
        actors, config.rollout, config.train.deadline_s, phones, reservation, on_nodes,
        owns_reservation=owns_reservation, files=files, folder=folder,
    )  # fmt: skip
    return await _started(group)


def _start_players(
    files: JobFiles,
    folder: Path | None,
    phones: Mapping[str, SharedPhones],
    engines: Sequence[Any],
    reservation: Reservation,
    run: RunOnNodes,
) -> list[Any]:
    """A worker on each node with phones, which plays with the engines of other workers."""
    import ray

    nodes = [node for node in reservation.layout.nodes if node.id in phones]
    remote, folders = ray.remote(RolloutActor), None
    if folder is not None:  # for the tokenizer and the sizes of images
        folders = reservation.share(folder, keep=True, without_weights=nodes)
    return [
        remote.options(**ray_cluster.on_node(node.id), max_concurrency=1000).remote(
            f"rollout{k}",
            files.on(node),
            None if folders is None else folders.on(node),
            run.on(node),
            (k, len(nodes)),
            phones[node.id],
            engines=engines,
        )
        for k, node in enumerate(nodes)
    ]


async def _started(rollouts: AnyRollouts) -> AnyRollouts:
    """The same rollouts, started; closed if they cannot be."""
    try:
        await rollouts.start()
    except BaseException:
        await rollouts.close()
        raise
    return rollouts


async def _shared_phones(
    config: Config, files: JobFiles, run: RunOnNodes, layout: Layout
) -> dict[str, SharedPhones]:
    """Start the phone pool that the workers of a node share, by node id; see `find_phone_hosts`.

    Returns:
        Empty if there is one actor, which has its phones itself, or if no phones are needed.
    """
    import ray

    no_hosts = not config.devices.hosts
    if (len(layout.engines) == 1 and no_hosts) or env.find_env(config.env.id).app is None:
        return {}
    start_s = config.rollout.start_deadline_s
    hosts = await asyncio.to_thread(find_phone_hosts, config.devices, layout, start_s)
    is_named = len(hosts) > 1 or not no_hosts
    pools: dict[str, Any] = {}
    found: dict[str, SharedPhones] = {}
    try:
        for number, host in enumerate(hosts):
            job = files.on(host.node)
            job = replace(job, tree=job.tree | {"devices": asdict(host.settings)})
            remote = ray.remote(PhonePoolActor).options(
                **ray_cluster.on_node(host.node.id), max_concurrency=1000
            )
            name = host.name if is_named else None
            pools[host.node.id] = remote.remote(job, run.on(host.node), number, name)
        for host in hosts:
            actor = pools[host.node.id]
            count, grows = await ray_cluster.await_result(
                actor.start.remote(), f"the phone pool of {host.name}", start_s
            )
            found[host.node.id] = SharedPhones(
                actor=actor,
                count=count,
                grows=grows,
                settings=host.settings,
                host=host.name if is_named else None,
            )
    except BaseException:
        for actor in pools.values():
            await _close_and_kill(actor, _PHONE_POOL, min(_CLOSE_S, start_s))
        raise
    return found
