"""Start and watch rollout workers in Ray actors, and replace them when they die."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from agentrl.cluster.placement import Node
from agentrl.cluster.ray_actor_calls import await_result
from agentrl.config import RolloutConfig
from agentrl.errors import AgentRLError, ClusterError, PhonePoolLost, WorkerLost
from agentrl.rollout.run_episode import EpisodeRequest
from agentrl.rollout.workers.actor_starter import CLOSE_S, ActorStarter, close_and_kill
from agentrl.rollout.workers.borrowed_engines import BorrowedEngines
from agentrl.types import ScoredEpisode

log = logging.getLogger(__name__)

_NODE_POLL_S = 2.0
"""Seconds between checks for the return of a lost node."""


@dataclass(slots=True, kw_only=True, eq=False)
class SupervisedWorker:
    """One worker, with its actor or, while the actor is being replaced, how the last one died."""

    supervisor: "WorkerSupervisor"
    number: int
    kind: Literal["both", "engine", "player"] = "both"
    """Whether the worker has an engine, plays, or both."""
    actor: Any = None
    """The actor's Ray handle; None after the actor has died."""
    is_current: bool = False
    """Whether the actor has the current weights."""
    room: tuple[int, int] = (1, 1)
    """Maximum and minimum number of concurrent episodes."""
    attempts: int = 0
    """Number of attempts to replace the worker's actor."""
    lost: str = ""
    """How the last actor died."""
    watch: asyncio.Task[None] | None = None
    replacement: asyncio.Task[None] | None = None
    """Replaces the actor, or gives it new phones."""

    @property
    def name(self) -> str:
        """The worker's name for messages."""
        return f"{'engine' if self.kind == 'engine' else 'rollout worker'} {self.number}"

    @property
    def is_left(self) -> bool:
        """Whether the worker can be used now, or may be usable soon."""
        task = self.replacement
        return self.is_current or (task is not None and not task.done())

    async def wait_until_ready(self) -> bool:
        """See EpisodeWorker.wait_until_ready."""
        while (task := self.replacement) is not None:
            await asyncio.wait({task})
            task.result()
            if task is self.replacement:  # else the actor died while it was given new phones
                break
        return self.is_current

    async def play_request(
        self, request: EpisodeRequest, player: str | None, greedy: bool
    ) -> ScoredEpisode | None:
        """Let the actor play an episode (`RolloutActor.play_and_deliver`); kill it if it hangs.

        See EpisodeWorker.play_request.
        """
        # The actor died while this slot was idle.
        if not self.is_current:
            return None
        starter, result = self.supervisor.starter, self.supervisor.result
        playing = asyncio.ensure_future(
            result(
                self, lambda one: one.actor.play_and_deliver.remote(request, player, greedy), None
            )
        )
        deadline_s = play_deadline_s(*self.room, starter.plan.settings.rollout)
        try:
            while not (await asyncio.wait({playing}, timeout=deadline_s))[0]:
                # Engine batches may be slow, so kill the actor only if it does not answer.
                with contextlib.suppress(WorkerLost):
                    await result(self, lambda one: one.actor.ping.remote(), starter.start_s)
            scored: ScoredEpisode = playing.result()
        except WorkerLost:
            return None
        except PhonePoolLost as error:
            self.supervisor.renew_phones(self, error)
            return None
        finally:
            playing.cancel()
        return scored


def play_deadline_s(most: int, least: int, settings: RolloutConfig) -> float:
    """Return how long an episode may take before checking whether its actor hangs.

    The episode and its scoring have their own deadlines, which only exclude waiting for an engine's
    batches. If other processes hold the actor's phones, the episode also waits for the actor's own
    episodes.

    Returns:
        Seconds, including the engine's start.
    """
    waves = math.ceil(most / least)
    return settings.start_deadline_s + waves * (settings.deadline_s + settings.reward_deadline_s)


Call = Callable[[SupervisedWorker], Any]
"""Calls a method of a worker's actor, and returns Ray's reference to the result."""


class WorkerSupervisor:
    """Starts the actors of rollout workers, and replaces them when they die.

    Each actor runs a call that lasts until the actor or its engine dies, so that deaths are noticed
    immediately. An actor is replaced at most `rollout.max_worker_restarts` times, on its own node;
    if the node has died, too, when it returns.
    """

    def __init__(self, starter: ActorStarter) -> None:
        self.starter = starter
        count = len(starter.reservation.layout.engines)
        self.engines = [SupervisedWorker(supervisor=self, number=number) for number in range(count)]
        """Workers with engines."""
        self._own_players: list[SupervisedWorker] = []
        """Workers that play without an engine, one on each node with phones."""
        self._borrowers: list[BorrowedEngines] = []
        """Handles through which this process uses the engines."""
        self.num_replaced = 0
        self._update: Callable[[SupervisedWorker, Any], Awaitable[bool]]

    async def start(self, update: Callable[[SupervisedWorker, Any], Awaitable[bool]]) -> None:
        """Start all workers; see Rollouts.start.

        `update` sends the current weights to a new actor with an engine, and returns whether the
        actor has them.
        """
        self._update = update
        await self.starter.open()
        self._find_players()
        await self._start_all(self.engines)
        await self._start_all(self._own_players)

    def _find_players(self) -> None:
        """Decide which workers play. Call after `ActorStarter.open`."""
        count = len(self.starter.players)
        self._own_players = [
            SupervisedWorker(supervisor=self, number=n, kind="player") for n in range(count)
        ]
        for worker in self.engines:
            worker.kind = "engine" if count else "both"

    @property
    def players(self) -> list[SupervisedWorker]:
        """Workers that play episodes."""
        return self._own_players or self.engines

    @property
    def everybody(self) -> list[SupervisedWorker]:
        """All workers, starting with workers that have engines."""
        return [*self.engines, *self._own_players]

    def node_of(self, worker: SupervisedWorker) -> Node:
        """Return the node where a worker's actor runs."""
        if worker.kind == "player":
            return self.starter.players[worker.number]
        return self.starter.reservation.layout.engines[worker.number].node

    def check_left(self) -> None:
        """Check that workers that play, and engines if any are used, are left.

        Raises:
            WorkerLost: no such worker is left or being replaced.
        """
        for needed in filter(None, (self.players, self.engines)):
            if not any(worker.is_left for worker in needed):
                raise self.all_lost()

    def all_lost(self) -> WorkerLost:
        """Return an error with the reasons why the workers died."""
        lost = [worker for worker in self.everybody if worker.lost]
        how = "; ".join(f"{w.name} on {self.node_of(w).name}: {w.lost}" for w in lost)
        return WorkerLost(f"no rollout worker can play: {how or 'none has the current weights'}")

    # --- calls ----------------------------------------------------------------------------

    async def result(self, worker: SupervisedWorker, call: Call, deadline_s: float | None) -> Any:
        """Await a call to a worker's actor; without a deadline, wait as long as the actor lives.

        Raises:
            WorkerLost: the actor died, or did not answer in time; it is being replaced.
            Exception: raised by the call.
        """
        if (actor := worker.actor) is None:
            raise WorkerLost(worker.lost)
        try:
            return await await_result(call(worker), worker.name, deadline_s)
        except WorkerLost as error:
            self._replace(worker, actor, error)
            raise

    async def each(
        self, workers: Iterable[SupervisedWorker], call: Call
    ) -> dict[SupervisedWorker, Any]:
        """Call each worker, and return the results from workers that survive the call."""
        results: dict[SupervisedWorker, Any] = {}

        async def add(worker: SupervisedWorker) -> None:
            # A worker that died is being replaced.
            with contextlib.suppress(WorkerLost):
                results[worker] = await self.result(worker, call, self.starter.start_s)

        await asyncio.gather(*map(add, workers))
        return results

    async def lend(self) -> None:
        """Send the actors with engines to workers that play without one."""
        engines = self._current_engines
        for borrower in self._borrowers:
            borrower.use(engines)
        if self.engines:
            await self.each(self._own_players, lambda worker: worker.actor.borrow.remote(engines))

    def borrow(self) -> BorrowedEngines:
        """Return a single engine for this process that combines all engines."""
        rollout = self.starter.plan.settings.rollout
        deadlines = rollout.deadline_s, rollout.start_deadline_s
        self._borrowers.append(BorrowedEngines(self._current_engines, *deadlines))
        return self._borrowers[-1]

    @property
    def _current_engines(self) -> list[Any]:
        return [worker.actor for worker in self.engines if worker.is_current]

    # --- replacement ----------------------------------------------------------------------

    async def _start_all(self, workers: Iterable[SupervisedWorker]) -> None:
        """Start workers; if one fails, leave no actors of the others behind."""
        starts = [asyncio.create_task(self._start(worker)) for worker in workers]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            raise

    async def _start(self, worker: SupervisedWorker) -> None:
        """Start a worker's actor with the current weights."""
        import ray

        has_engine = worker.kind != "player"
        borrowed = None if has_engine else self._current_engines
        actor, room = await self.starter.start(worker.number, borrowed)
        try:
            worker.is_current = await self._update(worker, actor) if has_engine else True
        except BaseException:
            ray.kill(actor)
            raise
        worker.actor, worker.room = actor, room
        worker.watch = asyncio.create_task(self._watch(worker))
        await self.lend()

    async def _watch(self, worker: SupervisedWorker) -> None:
        with contextlib.suppress(WorkerLost):
            await self.result(worker, lambda one: one.actor.watch.remote(), None)

    def renew_phones(self, worker: SupervisedWorker, error: PhonePoolLost) -> None:
        """Begin to give an actor the phones of a new pool, unless that has already begun."""
        task = worker.replacement
        if worker.actor is not None and (task is None or task.done()):
            worker.replacement = asyncio.create_task(self._renew_phones(worker, error))

    async def _renew_phones(self, worker: SupervisedWorker, lost: PhonePoolLost) -> None:
        """Give an actor the phones of a new pool; if that fails, replace the actor too."""
        actor, most = worker.actor, self.starter.plan.settings.rollout.max_worker_restarts
        try:
            if worker.attempts >= most:
                raise WorkerLost(f"rollout.max_worker_restarts={most} are used up")
            phones = await self.starter.living_phones(self.node_of(worker))
            call = actor.use_phones.remote(phones)
            # Late errors about the old pool arrive when the actor already uses the new one.
            if await await_result(call, worker.name, self.starter.start_s):
                worker.attempts += 1
                log.warning("%s uses a new phone pool: %s", worker.name, lost)
        except AgentRLError as error:
            why = WorkerLost(f"{lost}, and it got no new phones: {error}")
            if self._drop(worker, actor, why):
                await self._start_again(worker)

    def _replace(self, worker: SupervisedWorker, actor: Any, error: WorkerLost) -> None:
        """Begin to replace an actor, unless a replacement has already begun."""
        if self._drop(worker, actor, error):
            worker.replacement = asyncio.create_task(self._start_again(worker))

    def _drop(self, worker: SupervisedWorker, actor: Any, error: WorkerLost) -> bool:
        """Kill a worker's actor; return False if the worker no longer has this actor."""
        import ray

        # When an actor dies, several of its calls may fail.
        if worker.actor is not actor:
            return False
        worker.actor, worker.is_current, worker.lost = None, False, str(error)
        # The actor may only hang, so kill it; its engine and child processes end with it.
        ray.kill(actor)
        hint = self.starter.plan.tasks[""].train.crash_hint()
        log.warning("%s on %s is lost: %s%s", worker.name, self.node_of(worker).name, error, hint)
        return True

    async def _start_again(self, worker: SupervisedWorker) -> None:
        """Replace an actor that died, once its node is available."""
        most = self.starter.plan.settings.rollout.max_worker_restarts
        old: Node | None = None
        while worker.attempts < most:
            old = old or self.node_of(worker)
            try:
                node = await self._find_node(worker)
            except ClusterError as error:
                log.warning("giving up on %s: %s", worker.name, error)
                return
            worker.attempts += 1
            try:
                # From here on, the layout refers to the new node even if the rest fails.
                await self.starter.prepare(old, node)
                old = None
                await self._start(worker)
            except AgentRLError as error:
                log.warning("restarting %s failed: %s", worker.name, error)
                # If the node is lost again, the attempt does not count against the worker.
                if await self._find_again(node) is not node:
                    worker.attempts -= 1
            else:
                self.num_replaced += 1
                log.warning(
                    "%s was restarted on %s (restart %d; rollout.max_worker_restarts=%d)",
                    worker.name, node.name, worker.attempts, most,
                )  # fmt: skip
                return
        log.warning("giving up on %s after rollout.max_worker_restarts=%d", worker.name, most)

    async def _find_again(self, node: Node) -> Node | None:
        return await asyncio.to_thread(self.starter.reservation.find_again, node)

    async def _find_node(self, worker: SupervisedWorker) -> Node:
        """Wait until a worker's node is part of the cluster.

        Raises:
            ClusterError: no other worker of this kind is left, and the node did not return in time.
        """
        began = time.monotonic()
        while (node := await self._find_again(self.node_of(worker))) is None:
            others = any(w.actor is not None and w.kind == worker.kind for w in self.everybody)
            if not others and time.monotonic() - began > self.starter.start_s:
                raise ClusterError(
                    f"{self.node_of(worker).name} did not return within "
                    f"rollout.start_deadline_s={self.starter.start_s:g} s"
                )
            await asyncio.sleep(_NODE_POLL_S)
        return node

    # --- the end --------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop watching and replacing workers, and close the players without engines."""
        workers = self.everybody
        tasks = [
            task for w in workers for task in (w.watch, w.replacement) if task and not task.done()
        ]
        # Clear these first, so that nothing waits for a task that is being cancelled.
        for worker in workers:
            worker.watch = worker.replacement = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._close(self._own_players)
        self._own_players = []

    async def switch(self) -> None:
        """Play another environment, after `stop` and `ActorStarter.switch`.

        Raises:
            WorkerLost: no worker is left.
        """
        self._find_players()
        rooms = await self.each(
            self.engines, lambda one: one.actor.switch.remote(*self.starter.switched(one.number))
        )
        for worker, room in rooms.items():
            worker.room = room
            worker.watch = asyncio.create_task(self._watch(worker))
        for worker in self.engines:
            if worker.actor is None and worker.replacement is None:
                worker.replacement = asyncio.create_task(self._start_again(worker))
        await self._start_all(self._own_players)
        self.check_left()

    async def close(self) -> None:
        """Close and end all actors."""
        await self.stop()
        await self._close(self.engines)

    async def _close(self, workers: Iterable[SupervisedWorker]) -> None:
        actors = [(worker.actor, worker.name) for worker in workers if worker.actor is not None]
        deadline_s = min(CLOSE_S, self.starter.start_s)
        await asyncio.gather(*(close_and_kill(*actor, deadline_s) for actor in actors))
