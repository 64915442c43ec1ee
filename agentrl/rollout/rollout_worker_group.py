"""Rollouts in this process or in Ray actors, with the same methods."""

import asyncio
import functools
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from agentrl import config as configuration
from agentrl import env
from agentrl.cluster import ray_cluster
from agentrl.cluster.placement import Layout, plan_layout
from agentrl.cluster.reservation import Reservation, find_nodes
from agentrl.config import Config, RolloutConfig
from agentrl.policies.open_model import engine_class
from agentrl.rollout.collector import CollectionProgress
from agentrl.rollout.recorded_run import OpenedRun, RecordedRun, RunOnNodes
from agentrl.rollout.rollout_worker import RolloutWorker
from agentrl.rollout.run_episode import EpisodeRequest
from agentrl.rollout.shared_phone_pool import PhonePoolActor, SharedPhones, share_of
from agentrl.types import ScoredEpisode
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

    Args:
        actors: of `RolloutActor`.
        settings: deadlines and the engine.
        publish_deadline_s: for one message of the learner to an engine.
        phones: the pool that the workers of a node share, by the node's id; empty if each has its
            own.
        reservation: where the workers are.
        run: what they record.
        owns_reservation: whether to release it at the end.
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
    ) -> None:
        self._actors = actors
        self._phones, self._run = dict(phones), run
        self._reservation, self._owns_reservation = reservation, owns_reservation
        self._settings = settings
        self._publish_deadline_s = publish_deadline_s
        self._start_s = settings.start_deadline_s
        self._in_flight = [1] * len(actors)
        """Number of concurrent episodes of each actor."""

    async def start(self) -> None:
        """See RolloutWorker.start."""
        self._in_flight = await asyncio.gather(
            *(self._call(k, self._start_s, "start") for k in range(len(self._actors)))
        )

    async def finish(self) -> None:
        """See RolloutWorker.finish."""
        calls = [actor.finish.remote() for actor in self._actors]
        await self._await_all(calls)
        await self._close_phones()

    async def switch(self, config: Config, run: Path | None) -> None:
        """See RolloutWorker.switch."""
        await self.finish()
        tree, layout = config.to_dict(), self._reservation.layout
        self._run.close()
        self._run = await asyncio.to_thread(RunOnNodes, run, self._reservation)
        self._phones = await _shared_phones(config, self._run, layout)
        calls = [
            actor.switch.remote(tree, self._run.on(slot.node), self._phones.get(slot.node.id))
            for actor, slot in zip(self._actors, layout.engines, strict=True)
        ]
        self._in_flight = await self._await_all(calls)

    async def _await_all(self, calls: Sequence[Any]) -> list[Any]:
        """The results of one call to each actor."""
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
        count = len(self._actors)
        return [[t for t in requests if t.group % count == k] for k in range(count)]

    async def _collect(
        self, number: int, share: Sequence[EpisodeRequest], player: str | None, greedy: bool
    ) -> list[ScoredEpisode]:
        deadline_s = collect_deadline_s(len(share), self._in_flight[number], self._settings)
        episodes: list[ScoredEpisode] = await self._call(
            number, deadline_s, "collect", share, player, greedy
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
        progress = [
            await self._call(k, self._start_s, "get_progress") for k in range(len(self._actors))
        ]
        return sum(progress, start=CollectionProgress())

    async def _call(self, number: int, deadline_s: float, method: str, *arguments: Any) -> Any:
        reference = self._actors[number].call.remote(method, *arguments)
        return await ray_cluster.await_result(reference, f"rollout actor {number}", deadline_s)

    async def close(self) -> None:
        """Close the engines and phones, then the actors, and last the shared phone pool."""
        actors = [(actor, f"rollout actor {k}") for k, actor in enumerate(self._actors)]
        await asyncio.gather(
            *(_close_and_kill(*one, min(_CLOSE_S, self._start_s)) for one in actors)
        )
        await self._close_phones()
        self._run.close()
        if self._owns_reservation:
            self._reservation.release()

    async def _close_phones(self) -> None:
        pools, self._phones = self._phones, {}
        for phones in pools.values():
            await _close_and_kill(phones.actor, _PHONE_POOL, min(_CLOSE_S, self._start_s))


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
    """`RolloutWorker` in its own process."""

    def __init__(
        self,
        tree: dict[str, Any],
        folder: Path,
        run: RecordedRun | None,
        share: tuple[int, int],
        phones: SharedPhones | None = None,
        version: int = 0,
    ) -> None:
        self._name = f"rollout{share[0]}"
        self._run: OpenedRun | None = None
        settings, here = self._open(tree, run)
        self._rollouts = RolloutWorker(settings, folder, here, share, phones, version)

    def _open(self, tree: dict[str, Any], run: RecordedRun | None) -> tuple[Config, Path | None]:
        """The configuration and the folder to record into, which gets this process's output."""
        if self._run is not None:
            self._run.close()
        self._run = None if run is None else run.open()
        here = None if self._run is None else self._run.folder
        if here is not None:
            ray_cluster.redirect_output(here, self._name, ray_cluster.serials_in(tree))
        return configuration.from_dict(tree), here

    async def switch(
        self, tree: dict[str, Any], run: RecordedRun | None, phones: SharedPhones | None
    ) -> int:
        """See RolloutWorker.switch."""
        return await self._rollouts.switch(*self._open(tree, run), phones)

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
    return plan_layout(nodes, rollout, config.train if learns else None, gpus_per_engine)


def reserve(config: Config, *, learns: bool = True) -> Reservation:
    """Start or join Ray if the job uses it, and reserve the GPUs that the job needs.

    Raises:
        ConfigError: Ray is not installed, or see `plan_job`.
        ClusterError: Ray did not start, or see `Reservation`.
    """
    if config.rollout.launcher == "ray":
        ray_cluster.join_cluster()
    return Reservation(plan_job(config, learns=learns), config.rollout.start_deadline_s)


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
        folder: model folder; None if only scripted players or a server's model play, which always
            happens in this process.
        run: the run's folder; None records nothing.
        version: version of the weights in `folder`, in training steps.
        reservation: where the engines run; None reserves for them alone.

    Raises:
        ConfigError: Ray is not installed, or a phone cannot be reached.
        ClusterError: see `reserve`.
    """
    if config.rollout.launcher == "local" or folder is None:
        return await _started(RolloutWorker(config, folder, run, version=version))
    owns_reservation = reservation is None
    if reservation is None:
        reservation = reserve(config, learns=False)
        config = reservation.layout.applied_to(config)
    ray = ray_cluster.join_cluster()
    tree, slots = config.to_dict(), reservation.layout.engines
    on_nodes = await asyncio.to_thread(RunOnNodes, run, reservation)
    phones = await _shared_phones(config, on_nodes, reservation.layout)
    folders = await asyncio.to_thread(reservation.share, folder, keep=True)
    remote = ray.remote(RolloutActor)
    actors = [
        remote.options(**reservation.options(slot), max_concurrency=1000).remote(
            tree,
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
        owns_reservation=owns_reservation,
    )  # fmt: skip
    return await _started(group)


async def _started(rollouts: AnyRollouts) -> AnyRollouts:
    """The same rollouts, started; closed if they cannot be."""
    try:
        await rollouts.start()
    except BaseException:
        await rollouts.close()
        raise
    return rollouts


async def _shared_phones(
    config: Config, run: RunOnNodes, layout: Layout
) -> dict[str, SharedPhones]:
    """Start the phone pool that the actors of a node share, by node id.

    Virtual phones are divided among the nodes; of real ones, each node has those that are
    connected to it.

    Returns:
        Empty if there is one actor, which has its phones itself, or if no phones are needed.
    """
    import ray

    if len(layout.engines) == 1 or env.find_env(config.env.id).app is None:
        return {}
    nodes = list(dict.fromkeys(slot.node for slot in layout.engines))
    start_s = config.rollout.start_deadline_s
    pools: dict[str, Any] = {}
    found: dict[str, SharedPhones] = {}
    try:
        for number, node in enumerate(nodes):
            devices = replace(
                config.devices, source=share_of(config.devices.source, number, len(nodes))
            )
            tree = replace(config, devices=devices).to_dict()
            remote = ray.remote(PhonePoolActor).options(
                **ray_cluster.on_node(node.id), max_concurrency=1000
            )
            pools[node.id] = remote.remote(tree, run.on(node), number)
        for node_id, actor in pools.items():
            count, grows = await ray_cluster.await_result(
                actor.start.remote(), _PHONE_POOL, start_s
            )
            found[node_id] = SharedPhones(actor=actor, count=count, grows=grows)
    except BaseException:
        for actor in pools.values():
            await _close_and_kill(actor, _PHONE_POOL, min(_CLOSE_S, start_s))
        raise
    return found
