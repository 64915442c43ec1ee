"""Rollouts in this process or in Ray actors, with the same methods."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from agentrl.cluster import ray_cluster
from agentrl.cluster.placement import Layout, Node, plan_layout
from agentrl.cluster.reservation import Reservation, SharedPath, find_nodes
from agentrl.config import Config, RolloutConfig
from agentrl.errors import AgentRLError, ClusterError, EngineError, WorkerLost
from agentrl.policies.open_model import engine_class
from agentrl.rollout.collector import CollectionProgress, Collector
from agentrl.rollout.failure_log import FailureLog
from agentrl.rollout.nodes.phone_hosts import nodes_of_hosts
from agentrl.rollout.rollout_actor import CLOSE_S, ActorStarter, close_and_kill
from agentrl.rollout.rollout_worker import RolloutWorker
from agentrl.rollout.run_episode import EpisodeRequest
from agentrl.types import ScoredEpisode
from agentrl.weight_sync.engine_link import EngineLink

log = logging.getLogger(__name__)

_NODE_POLL_S = 2.0
"""Between two looks whether a node has come back."""


@dataclass(slots=True, kw_only=True)
class _Member:
    """One worker of a group: an actor, or what is known about one that is being replaced."""

    number: int
    node: Node
    actor: Any = None
    """The Ray handle; None if it has died."""
    is_current: bool = False
    """Whether it has the current weights."""
    room: tuple[int, int] = (1, 1)
    """Maximum and minimum number of concurrent episodes."""
    attempts: int = 0
    """How often a new actor was started in place of one that had died."""
    lost: str = ""
    """How the last actor died."""
    replacement: asyncio.Task[None] | None = None
    kind: Literal["both", "engine", "player"] = "both"
    """Whether it has an engine, plays, or both."""

    @property
    def name(self) -> str:
        return f"{'engine' if self.kind == 'engine' else 'rollout worker'} {self.number}"


class RolloutWorkerGroup:
    """Rollout workers in Ray actors, which take the next request when they have room.

    What a worker was playing when it died is played by others, and it is replaced at most
    `rollout.max_worker_restarts` times, on its own node. If that has died, too, the worker returns
    with the node.

    Each plays with its own engine, on phones of its node if it needs any. If the nodes with phones
    are not exactly those with engines, a worker on each node with phones plays instead, with the
    engines of all.

    Args:
        starter: starts the actors.
        settings: deadlines and the engine.
        publish_deadline_s: for one message of the learner to an engine.
        owns_reservation: whether to release it at the end.
    """

    def __init__(
        self,
        starter: ActorStarter,
        settings: RolloutConfig,
        publish_deadline_s: float,
        *,
        owns_reservation: bool,
    ) -> None:
        self._starter, self._reservation = starter, starter.reservation
        self._owns_reservation = owns_reservation
        self._settings = settings
        self._publish_deadline_s = publish_deadline_s
        self._start_s = settings.start_deadline_s
        self._members = [
            _Member(number=number, node=slot.node)
            for number, slot in enumerate(self._reservation.layout.engines)
        ]
        """The workers with engines."""
        self._players = self._members
        """The workers that play."""
        self._updating: list[tuple[_Member, Any]] = []
        """The workers, and their actors, that receive the weights that the learner sends."""
        self._files: dict[str, tuple[Path, int]] = {}
        """The methods that load the current weights, with their arguments."""
        self._streams = False
        """Whether the learner sends weights to the engines directly, without a file."""
        self._uses_engines = False
        self._is_awake = asyncio.Event()
        self._is_awake.set()
        self._num_replaced = 0
        self._progress, self._failures = CollectionProgress(), FailureLog()

    async def start(self) -> None:
        """See RolloutWorker.start."""
        await self._starter.open()
        self._find_players()
        await asyncio.gather(*map(self._start_member, self._members))
        await self._start_players()

    def _find_players(self) -> None:
        """Decide who plays, after `ActorStarter.open`."""
        nodes = self._starter.players
        for member in self._members:
            member.kind = "engine" if nodes else "both"
        self._players = [
            _Member(number=number, node=node, kind="player") for number, node in enumerate(nodes)
        ] or self._members

    async def _start_players(self) -> None:
        if self._players is not self._members:
            await asyncio.gather(*map(self._start_member, self._players))

    # --- who is there ---------------------------------------------------------------------

    @property
    def num_engines(self) -> int:
        """Each worker has one."""
        return len(self._members)

    def worker_metrics(self) -> dict[str, float]:
        """How many workers can play now, and how many have been replaced so far."""
        playing = sum(m.is_current for m in self._players)
        return {"workers": float(playing), "replaced_workers": float(self._num_replaced)}

    def _living(self) -> list[_Member]:
        """The workers whose actor has not died, as far as is known."""
        return [m for m in self._members if m.actor is not None]

    def _losses(self) -> str:
        lost = [m for m in self._everybody() if m.lost]
        return "; ".join(f"{m.name} on {m.node.address}: {m.lost}" for m in lost)

    def _everybody(self) -> list[_Member]:
        """All workers, those with engines first."""
        return [*self._members, *(m for m in self._players if m.kind == "player")]

    # --- playing --------------------------------------------------------------------------

    async def collect(
        self, requests: Sequence[EpisodeRequest], player: str | None = None, greedy: bool = False
    ) -> list[ScoredEpisode]:
        """See RolloutWorker.collect.

        Raises:
            WorkerLost: all workers died, and could not be replaced.
        """
        self._uses_engines |= player is None
        self._progress = CollectionProgress()
        refills = self._settings.max_refills * len(self._players)
        collector = Collector(requests, refills, self._progress, self._failures)
        rooms = [min(m.room[0], len(requests)) for m in self._players]
        # In turns, so that groups that all workers could begin are divided among them.
        members = [
            m for slot in range(max(rooms)) for m, room in zip(self._players, rooms, strict=True)
            if slot < room
        ]  # fmt: skip
        return await collector.collect(
            self._play_requests(member, collector, player, greedy) for member in members
        )

    async def get_progress(self) -> CollectionProgress:
        """Progress of the running collection."""
        return self._progress

    async def _play_requests(
        self, member: _Member, collector: Collector, player: str | None, greedy: bool
    ) -> None:
        """Play one episode at a time on a worker, also on the one that replaces it."""

        async def play(request: EpisodeRequest) -> ScoredEpisode:
            if not member.is_current:  # it died while this slot had nothing to do
                raise WorkerLost(member.lost)
            deadline_s = play_deadline_s(*member.room, self._settings)
            call = member.actor.play_request.remote(request, player, greedy)
            scored: ScoredEpisode = await self._await(member, call, deadline_s)
            return scored

        while not collector.ended.done():
            if (replacement := member.replacement) is not None:
                if not replacement.done():
                    await asyncio.wait(
                        {replacement, collector.ended}, return_when=asyncio.FIRST_COMPLETED
                    )
                if replacement.done():
                    replacement.result()
            if not member.is_current:
                break
            with contextlib.suppress(WorkerLost):  # it is being replaced
                await collector.play_requests(play, member.number)
        if not collector.ended.done():
            self._check_left()

    def _check_left(self) -> None:
        """Raise WorkerLost if no worker plays, or may do so soon; or if no engine is left."""
        if not any(map(self._may_play, self._players)) or (
            self._members and not any(map(self._may_play, self._members))
        ):
            raise WorkerLost(f"no rollout worker is left to play: {self._losses()}")

    def _may_play(self, member: _Member) -> bool:
        """Whether a worker plays, or may do so during this collection."""
        task = member.replacement
        return member.is_current or (task is not None and not task.done())

    async def _lend(self) -> None:
        """Let those that play without an engine know the actors that have one."""
        engines = [m.actor for m in self._members if m.is_current]

        async def lend(player: _Member) -> None:
            with contextlib.suppress(WorkerLost):
                await self._await(player, player.actor.borrow.remote(engines), self._start_s)

        players = [m for m in self._players if m.kind == "player" and m.actor is not None]
        if self._members:
            await asyncio.gather(*map(lend, players))

    # --- workers that die -----------------------------------------------------------------

    async def _await(self, member: _Member, call: Any, deadline_s: float) -> Any:
        """The result of a call to a worker's actor.

        Raises:
            WorkerLost: it died, or did not answer in time; it is being replaced.
            Exception: raised by the call.
        """
        actor = member.actor
        try:
            return await ray_cluster.await_result(call, member.name, deadline_s)
        except WorkerLost as error:
            self._replace(member, actor, error)
            raise

    def _replace(self, member: _Member, actor: Any, error: WorkerLost) -> None:
        """Begin to replace an actor, unless that has happened."""
        import ray

        if member.actor is not actor:
            return
        member.actor, member.is_current, member.lost = None, False, str(error)
        ray.kill(actor)  # if it hangs; its engine and its children end with it
        log.warning("%s on %s is lost: %s", member.name, member.node.address, error)
        member.replacement = asyncio.create_task(self._start_again(member))

    async def _start_again(self, member: _Member) -> None:
        """Start another actor in place of one that has died, when its node is there."""
        most = self._settings.max_worker_restarts
        while member.attempts < most:
            try:
                node = await self._find_node(member)
            except ClusterError as error:
                log.warning("%s is not started again: %s", member.name, error)
                return
            member.attempts += 1
            try:
                engine = None if member.kind == "player" else member.number
                await self._starter.prepare(node, member.node, engine)
                member.node = node
                await self._start_member(member)
            except AgentRLError as error:
                log.warning("%s could not be started again: %s", member.name, error)
                if await self._find_again(node) is not node:  # not the worker's failure
                    member.attempts -= 1
            else:
                self._num_replaced += 1
                log.warning(
                    "%s was started again on %s (%d of rollout.max_worker_restarts=%d)",
                    member.name, node.address, member.attempts, most,
                )  # fmt: skip
                return
        log.warning("%s is not started again: rollout.max_worker_restarts=%d", member.name, most)

    async def _find_again(self, node: Node) -> Node | None:
        return await asyncio.to_thread(self._reservation.find_again, node)

    async def _find_node(self, member: _Member) -> Node:
        """Wait until a worker's node is part of the cluster.

        Raises:
            ClusterError: no other worker is left, and the node did not return in time.
        """
        began = time.monotonic()
        while (node := await self._find_again(member.node)) is None:
            others = any(m.actor is not None for m in self._everybody() if m.kind == member.kind)
            if not others and time.monotonic() - began > self._start_s:
                raise ClusterError(
                    f"{member.node.address} did not return within "
                    f"rollout.start_deadline_s={self._start_s:g} s"
                )
            await asyncio.sleep(_NODE_POLL_S)
        return node

    async def _start_member(self, member: _Member) -> None:
        """Start a worker's actor, and give it the current weights."""
        import ray

        if member.kind == "player":
            engines = [m.actor for m in self._members if m.is_current]
            member.actor, member.room = await self._starter.start_player(member.number, engines)
            member.is_current = True
            return
        actor, room = await self._starter.start(member.number)
        try:
            await self._bring_up_to_date(member, actor)
        except BaseException:
            ray.kill(actor)
            raise
        member.actor, member.room = actor, room
        # Weights that the learner has sent are in no file: they come with the next ones.
        member.is_current = not self._streams
        await self._lend()

    async def _bring_up_to_date(self, member: _Member, actor: Any) -> None:
        async def call(method: str, *arguments: Any) -> None:
            reference = actor.call.remote(method, *arguments)
            await ray_cluster.await_result(reference, member.name, self._start_s)

        loaded: dict[str, tuple[Path, int]] | None = None
        while loaded != self._files:  # new ones may be published meanwhile
            loaded = dict(self._files)
            try:
                for method, (path, version) in loaded.items():
                    await call(method, (await self._share(path)).on(member.node), version)
                if self._uses_engines:
                    await self._is_awake.wait()
                    await call("start_engine")
            except (EngineError, ClusterError):
                if loaded == self._files:
                    raise
        if not self._is_awake.is_set():
            await call("sleep")

    async def _share(self, path: Path) -> SharedPath:
        """A file that rank 0 has written on its node, on the nodes of the engines."""
        layout = self._reservation.layout
        source = layout.ranks[0].node if layout.ranks else None
        return await self._starter.share(path, source, keep=False)

    # --- engines and weights --------------------------------------------------------------

    async def start_engine(self) -> None:
        """See RolloutWorker.start_engine."""
        self._uses_engines = True
        await self._call(self._living(), "start_engine")
        self._check_left()

    async def sleep(self) -> None:
        """See RolloutWorker.sleep."""
        self._is_awake.clear()
        await self._call(self._living(), "sleep")

    async def load_weights(self, path: Path, version: int) -> None:
        """See RolloutWorker.load_weights; rank 0 has written the file on its node."""
        await self._load("load_weights", path, version)

    async def load_adapter(self, folder: Path, version: int) -> None:
        """See RolloutWorker.load_adapter; rank 0 has written the folder on its node."""
        await self._load("load_adapter", folder, version)

    async def _load(self, method: str, path: Path, version: int) -> None:
        self._files[method] = (path, version)
        self._is_awake.set()
        shared = await self._share(path)
        await self._call(self._living(), method, lambda m: (shared.on(m.node), version))
        self._check_left()

    async def begin_weight_update(
        self, version: int, shapes: Mapping[str, Sequence[int]], checked: bool
    ) -> None:
        """See RolloutWorker.begin_weight_update."""
        self._streams = self._uses_engines = True
        self._is_awake.set()
        if not self._living():
            await asyncio.gather(*filter(None, [m.replacement for m in self._members]))
        members = self._living()
        await self._call(members, "begin_weight_update", lambda m: (version, shapes, checked))
        self._updating = [(m, m.actor) for m in members if m.actor is not None]
        if not self._updating:
            raise WorkerLost(f"no rollout worker is left: {self._losses()}")

    async def finish_weight_update(
        self, version: int, names: Sequence[str], digest: str | None
    ) -> None:
        """See RolloutWorker.finish_weight_update."""
        updated = [m for m, actor in self._updating if m.actor is actor]
        await self._call(updated, "finish_weight_update", lambda m: (version, names, digest))
        for member, actor in self._updating:
            member.is_current = member.actor is actor
        await self._lend()
        self._check_left()

    def link(self) -> EngineLink:
        """A link from any process of the cluster to the actors that `begin_weight_update` found."""
        workers = engine_class(self._settings).num_workers(self._settings.engine_kwargs)
        actors = [actor for _, actor in self._updating]
        return RayLink(actors, workers, self._publish_deadline_s)

    async def _call(
        self,
        members: Sequence[_Member],
        method: str,
        arguments: Callable[[_Member], tuple[Any, ...]] = lambda member: (),
    ) -> None:
        """Call a method of several workers; those that die meanwhile are replaced."""

        async def call(member: _Member) -> None:
            actor = member.actor
            try:
                reference = actor.call.remote(method, *arguments(member))
                await ray_cluster.await_result(reference, member.name, self._start_s)
            except WorkerLost as error:
                self._replace(member, actor, error)

        await asyncio.gather(*map(call, members))

    # --- the end --------------------------------------------------------------------------

    async def finish(self) -> None:
        """See RolloutWorker.finish."""
        living = [m for m in self._everybody() if m.actor is not None]
        await asyncio.gather(*map(self._finish, living))
        await self._stop_replacing()
        await self._close_players()
        await self._starter.close_phones()

    async def _finish(self, member: _Member) -> None:
        with contextlib.suppress(WorkerLost):
            await self._await(member, member.actor.finish.remote(), self._start_s)

    async def switch(self, config: Config, run: Path | None) -> None:
        """See RolloutWorker.switch."""
        await self.finish()
        await self._starter.switch(config, run)
        self._settings, self._start_s = config.rollout, config.rollout.start_deadline_s
        self._progress, self._failures = CollectionProgress(), FailureLog()
        self._find_players()

        async def switch(member: _Member) -> None:
            if member.kind == "engine":
                call = member.actor.reopen.remote(*self._starter.reopened(member.number))
            else:
                call = member.actor.switch.remote(*self._starter.switched(member.number))
            with contextlib.suppress(WorkerLost):
                member.room = await self._await(member, call, self._start_s) or (0, 0)

        await asyncio.gather(*map(switch, self._living()))
        for member in self._members:
            if member.actor is None and member.replacement is None:
                member.replacement = asyncio.create_task(self._start_again(member))
        await self._start_players()
        self._check_left()

    async def _close_players(self) -> None:
        """Close the workers that play without an engine of their own."""
        players = [m for m in self._players if m.kind == "player" and m.actor is not None]
        await asyncio.gather(*(close_and_kill(m.actor, m.name, self._close_s) for m in players))
        self._players = self._members

    @property
    def _close_s(self) -> float:
        return min(CLOSE_S, self._start_s)

    async def _stop_replacing(self) -> None:
        """Cancel replacements that are under way."""
        tasks = [m.replacement for m in self._everybody() if m.replacement is not None]
        pending = [task for task in tasks if not task.done()]
        for member in self._everybody():
            member.replacement = None
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def close(self) -> None:
        """Close the engines and phones, then the actors, and last the shared phone pools."""
        await self._stop_replacing()
        await self._close_players()
        members = self._living()
        await asyncio.gather(*(close_and_kill(m.actor, m.name, self._close_s) for m in members))
        await self._starter.close()
        if self._owns_reservation:
            self._reservation.release()


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

        async def call(number: int, actor: Any) -> None:
            reference = actor.call.remote("receive_weights", messages[number])
            try:
                await ray_cluster.await_result(reference, f"engine {number}", self._deadline_s)
            except WorkerLost as error:
                log.warning("%s; its weights are not sent any more", error)
                del self._actors[number]
                if not self._actors:
                    raise

        async def call_all() -> None:
            await asyncio.gather(*(call(*one) for one in list(self._actors.items())))

        asyncio.run(call_all())


def play_deadline_s(most: int, least: int, settings: RolloutConfig) -> float:
    """Deadline for an actor to play one episode; only an actor that hangs takes longer.

    The episode and its scoring have their own deadlines. If others hold the actor's phones, the
    episode waits for those that the actor plays itself.

    Args:
        most: maximum number of concurrent episodes of the actor.
        least: minimum number of concurrent episodes of the actor.
        settings: the deadlines.

    Returns:
        Seconds, including those for the engine to start.
    """
    waves = math.ceil(most / least)
    return settings.start_deadline_s + waves * (settings.deadline_s + settings.reward_deadline_s)


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
    ray_cluster.join_cluster()
    starter = ActorStarter(config, folder, run, version, reservation)
    group = RolloutWorkerGroup(
        starter, config.rollout, config.train.deadline_s, owns_reservation=owns_reservation
    )
    return await _started(group)


async def _started(rollouts: AnyRollouts) -> AnyRollouts:
    """The same rollouts, started; closed if they cannot be."""
    try:
        await rollouts.start()
    except BaseException:
        await rollouts.close()
        raise
    return rollouts
