"""Play episodes in Ray actors."""

import asyncio
import contextlib
import math
from collections.abc import Sequence
from pathlib import Path

from agentrl.config import RolloutConfig
from agentrl.errors import WorkerLost
from agentrl.policies.engines.engine import TokenEngine
from agentrl.rollout.collector import CollectionProgress, Collector
from agentrl.rollout.failure_log import FailureLog
from agentrl.rollout.play_plan import PlayPlan
from agentrl.rollout.run_episode import EpisodeRequest
from agentrl.rollout.workers.engine_actors import EngineActors
from agentrl.rollout.workers.rollout_actor import ActorStarter
from agentrl.rollout.workers.worker_supervisor import SupervisedWorker, WorkerSupervisor
from agentrl.types import ScoredEpisode

_CHECK_S = 1.0
"""Seconds between checks that workers are left while episodes are collected."""


class RolloutWorkerGroup:
    """The `Rollouts` of Ray actors, which take the next request when they have room.

    What a worker was playing when it died is played by others, and it is replaced; see
    `WorkerSupervisor`.

    Each plays with its own engine, on phones of its node if it needs any. If the nodes with phones
    are not exactly those with engines, a worker on each node with phones plays instead, with the
    engines of all.

    Args:
        starter: starts the actors.
    """

    def __init__(self, starter: ActorStarter) -> None:
        self._starter, self._workers = starter, WorkerSupervisor(starter)
        self.engines = EngineActors(starter, self._workers)
        self.progress, self._failures = CollectionProgress(), FailureLog()

    async def start(self) -> None:
        """See Rollouts.start."""
        await self._workers.start(self.engines.bring_up_to_date)

    def borrow(self) -> TokenEngine:
        """All engines as one, for prompts of this process; after they were started."""
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
        refills = self._starter.plan.rollout.max_refills * len(players)
        collector = Collector(requests, refills, self.progress, self._failures)
        rooms = [min(worker.room[0], len(requests)) for worker in players]
        # In turns, so that groups that all workers could begin are divided among them.
        slots = [
            self._play_requests(worker, collector, player, greedy)
            for slot in range(max(rooms)) for worker, room in zip(players, rooms, strict=True)
            if slot < room
        ]  # fmt: skip
        return await collector.collect([*slots, self._check_left(collector)])

    async def _play_requests(
        self, worker: SupervisedWorker, collector: Collector, player: str | None, greedy: bool
    ) -> None:
        """Play one episode at a time on a worker, also on the actor that replaces its own."""

        async def play(request: EpisodeRequest) -> ScoredEpisode:
            if not worker.is_current:  # it died while this slot had nothing to do
                raise WorkerLost(worker.lost)
            playing = asyncio.ensure_future(
                self._workers.result(
                    worker, lambda one: one.actor.play_request.remote(request, player, greedy), None
                )
            )
            deadline_s = play_deadline_s(*worker.room, self._starter.plan.rollout)
            try:
                while not (await asyncio.wait({playing}, timeout=deadline_s))[0]:
                    # Waiting for an engine's batch does not count. An actor that hangs is killed.
                    with contextlib.suppress(WorkerLost):
                        await self._workers.result(
                            worker, lambda one: one.actor.ping.remote(), self._starter.start_s
                        )
                scored: ScoredEpisode = playing.result()
            finally:
                playing.cancel()
            return scored

        while not collector.ended.done():
            if (replacement := worker.replacement) is not None:
                await asyncio.wait(
                    {replacement, collector.ended}, return_when=asyncio.FIRST_COMPLETED
                )
                if replacement.done():
                    replacement.result()
            if not worker.is_current:
                break
            with contextlib.suppress(WorkerLost):  # it is being replaced
                await collector.play_requests(play, worker.number)

    async def _check_left(self, collector: Collector) -> None:
        """End a collection that no worker is left to play."""
        while not collector.ended.done():
            self._workers.check_left()
            await asyncio.wait({collector.ended}, timeout=_CHECK_S)

    async def finish(self) -> None:
        """See Rollouts.finish."""
        workers = self._workers
        await workers.each(workers.everybody, lambda worker: worker.actor.finish.remote())
        await workers.stop()
        await self._starter.close_phones()

    async def switch(self, plan: PlayPlan, run: Path | None) -> None:
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


def play_deadline_s(most: int, least: int, settings: RolloutConfig) -> float:
    """When to ask whether an actor that plays one episode hangs.

    The episode and its scoring have their own deadlines. Only what they do not count takes longer:
    waiting for the batches of an engine. If others hold the actor's phones, the episode waits for
    those that the actor plays itself.

    Args:
        most: maximum number of concurrent episodes of the actor.
        least: minimum number of concurrent episodes of the actor.
        settings: the deadlines.

    Returns:
        Seconds, including those for the engine to start.
    """
    waves = math.ceil(most / least)
    return settings.start_deadline_s + waves * (settings.deadline_s + settings.reward_deadline_s)
