"""Start rollout actors in Ray, and the phone pools they need on their nodes."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from agentrl.cluster.placement import Node
from agentrl.cluster.ray_actor_calls import await_result, on_node
from agentrl.cluster.reservation import Reservation
from agentrl.errors import WorkerLost
from agentrl.rollout.nodes.job_files import JobFiles
from agentrl.rollout.nodes.phone_hosts import PhoneHost, find_phone_hosts
from agentrl.rollout.nodes.run_folder_on_nodes import RunOnNodes
from agentrl.rollout.nodes.shared_phone_pool import POOL, PhonePoolActor, SharedPhones
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.rollout.workers.rollout_actor import RolloutActor

log = logging.getLogger(__name__)

CLOSE_S = 30.0
"""Seconds that an actor may take to close its engine and phones before it is killed."""


class ActorStarter:
    """Starts a job's rollout actors, including replacements for actors that died.

    With `only_engines`, the actors only generate and do not play episodes.
    """

    def __init__(
        self,
        plan: RolloutPlan,
        folder: Path | None,
        run: Path | None,
        version: int,
        reservation: Reservation,
        *,
        owns_reservation: bool = False,
        only_engines: bool = False,
    ) -> None:
        self.reservation, self._owns_reservation = reservation, owns_reservation
        self._only_engines = only_engines
        self.plan, self._folder, self._version = plan, folder, version
        self._run_path = run
        self._run: RunOnNodes | None = None
        self._files: JobFiles | None = None
        self._hosts: list[PhoneHost] = []
        self._is_apart = False
        self.phones: dict[str, SharedPhones] = {}
        """Shared phones by node id; empty if a single actor owns the phones, or none are needed."""
        self._moving = asyncio.Lock()

    @property
    def start_s(self) -> float:
        """Seconds for an actor to start, and for calls that may have to start its engine."""
        return self.plan.settings.rollout.start_deadline_s

    async def open(self) -> None:
        """Prepare the run's folder and the phones on the nodes; see `find_phone_hosts`.

        Raises:
            ConfigError: a phone cannot be reached.
        """
        plan, layout = self.plan, self.reservation.layout
        self._run = await asyncio.to_thread(RunOnNodes, self._run_path, self.reservation)
        self._files = await asyncio.to_thread(JobFiles, plan.settings, self.reservation)
        self._hosts, self._is_apart = [], False
        if self._only_engines:
            return
        # A single actor opens the phones itself, without a pool in another actor.
        one_has_them = len(layout.engines) == 1 and not plan.settings.devices.hosts
        if one_has_them or plan.tasks[""].train.app is None:
            return
        devices = plan.settings.devices
        self._hosts = await asyncio.to_thread(find_phone_hosts, devices, layout, self.start_s)
        engines = {slot.node.id for slot in layout.engines}
        self._is_apart = {host.node.id for host in self._hosts} != engines
        try:
            await asyncio.gather(*map(self._start_phones, self._hosts))
        except BaseException:
            await self.close_phones()
            raise

    @property
    def players(self) -> list[Node]:
        """Nodes with phones, unless they are exactly the nodes with engines."""
        return [host.node for host in self._hosts] if self._is_apart else []

    async def start(
        self, number: int, engines: Sequence[Any] | None = None
    ) -> tuple[Any, tuple[int, int]]:
        """Start an actor.

        Args:
            number: index of the actor's engine in the layout, or of its node in `players`.
            engines: actors whose engines this actor uses; empty if no local model plays. None for
                an actor with its own engine.

        Returns:
            The actor's handle, and the result of `RolloutActor.start`.

        Raises:
            ConfigError: see Rollouts.start.
            ClusterError: the model could not be copied to the actor's node.
            WorkerLost: the actor died, or did not start in time.
        """
        import ray

        slots, players, folder = self.reservation.layout.engines, self.players, None
        node = slots[number].node if engines is None else players[number]
        if self._folder is not None:
            # Actors with borrowed engines need only the tokenizer and the image sizes.
            without_weights = None if engines is None else players
            share = partial(self.reservation.share, keep=True, without_weights=without_weights)
            folder = (await asyncio.to_thread(share, self._folder)).on(node)
        plays = engines is not None or not (players or self._only_engines)
        plays, job, run, phones = self._on(node, plays=plays)
        if engines is None:
            options, count = self.reservation.options(slots[number]), len(slots)
        else:
            options, count = on_node(node.id), len(players)
        # Ray queues calls beyond this limit, but pings and weights must not wait for episodes.
        calls = 1000 + self.plan.settings.rollout.concurrency
        name = f"{'rollout' if plays else 'engine'}{number}"
        actor = ray.remote(RolloutActor).options(**options, max_concurrency=calls).remote(
            name, plays, job, folder, run, (number, count), phones, self._version,
            None if folder is None else engines,
        )  # fmt: skip
        try:
            room = await await_result(actor.start.remote(), name, self.start_s)
        except BaseException:
            ray.kill(actor)
            raise
        return actor, room

    def switched(self, number: int) -> tuple[Any, ...]:
        """Return the arguments of `RolloutActor.switch` for an engine's actor."""
        return self._on(self.reservation.layout.engines[number].node, plays=not self.players)

    def _on(self, node: Node, *, plays: bool) -> tuple[Any, ...]:
        assert self._run is not None, "it is open"
        assert self._files is not None, "it is open"
        phones = self.phones.get(node.id) if plays else None
        return plays, self._files.on(node), self._run.on(node), phones

    async def prepare(self, old: Node, node: Node) -> None:
        """Prepare a node for the replacement of an actor that died.

        Raises:
            ClusterError: the node's GPUs are in use.
            ConfigError: a phone cannot be reached.
            WorkerLost: the phones did not start.
        """
        assert self._run is not None, "it is open"
        async with self._moving:
            await asyncio.to_thread(self.reservation.readmit, old, node)
            if node.id != old.id:
                self.phones.pop(old.id, None)
                await asyncio.to_thread(self._run.find_nodes)
                self._files = await asyncio.to_thread(
                    JobFiles, self.plan.settings, self.reservation
                )
                self._hosts = [
                    replace(host, node=node) if host.node.id == old.id else host
                    for host in self._hosts
                ]
            await self._restart_phones(node)

    async def living_phones(self, node: Node) -> SharedPhones:
        """Return a node's shared phones, from a new pool if the last one died.

        Raises:
            ConfigError: a phone cannot be reached.
            WorkerLost: the phones did not start.
        """
        async with self._moving:
            await self._restart_phones(node)
            return self.phones[node.id]

    async def _restart_phones(self, node: Node) -> None:
        """Start the phone pool of a node, if it needs one that does not answer."""
        for host in self._hosts:
            if host.node.id == node.id and not await self._has_phones(node):
                await self._start_phones(host)

    async def _has_phones(self, node: Node) -> bool:
        """Return whether the phone pool of a node answers."""
        import ray

        if (phones := self.phones.get(node.id)) is None:
            return False
        try:
            ping = phones.actor.renew.remote([])
            await await_result(ping, POOL, self.start_s)
        except WorkerLost:
            ray.kill(self.phones.pop(node.id).actor)
            return False
        return True

    async def _start_phones(self, host: PhoneHost) -> None:
        """Start the phone pool shared by the workers of a node."""
        import ray

        assert self._run is not None, "it is open"
        assert self._files is not None, "it is open"
        node, number = host.node, self._hosts.index(host)
        is_named = len(self._hosts) > 1 or bool(self.plan.settings.devices.hosts)
        name = host.node.name if is_named else None
        job = self._files.on(node)
        job = replace(job, tree=job.tree | {"devices": asdict(host.settings)})
        options = on_node(node.id)
        remote = ray.remote(PhonePoolActor).options(**options, max_concurrency=1000)
        actor = remote.remote(job, self._run.on(node), number, name)
        try:
            count, grows = await await_result(
                actor.start.remote(),
                f"the phone pool of {host.node.name}",
                self.start_s,
            )
        except BaseException:
            await close_and_kill(actor, POOL, self._close_s)
            raise
        self.phones[node.id] = SharedPhones(
            actor=actor, count=count, grows=grows, settings=host.settings, host=name
        )

    async def switch(self, plan: RolloutPlan, run: Path | None) -> None:
        """Prepare the nodes for another environment, after the phones have been closed."""
        if self._run is not None:
            self._run.close()
        self.plan, self._run_path = plan, run
        await self.open()

    async def close_phones(self) -> None:
        """Close the phones of all nodes."""
        pools, self.phones = self.phones, {}
        for phones in pools.values():
            await close_and_kill(phones.actor, POOL, self._close_s)

    async def close(self) -> None:
        """Close the phones and the recordings, after the actors have been closed."""
        with ExitStack() as last:
            if self._owns_reservation:
                last.callback(self.reservation.release)
            if self._run is not None:
                last.callback(self._run.close)
            await self.close_phones()

    @property
    def _close_s(self) -> float:
        return min(CLOSE_S, self.start_s)


async def close_and_kill(actor: Any, who: str, deadline_s: float = CLOSE_S) -> None:
    """Close an actor, then kill it; wait at most `deadline_s` for it to close."""
    import ray

    try:
        await await_result(actor.close.remote(), who, deadline_s)
    except Exception as error:
        log.warning("closing %s failed: %s", who, error)
    finally:
        ray.kill(actor)
