"""Rollouts in this process, or lifted into Ray actors: the same calls."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from agentrl import config as configuration
from agentrl.config import Config, RolloutConfig
from agentrl.errors import WorldError
from agentrl.rollout import cluster
from agentrl.rollout.collector import Progress
from agentrl.rollout.rollouts import Rollouts
from agentrl.rollout.ticket import Ticket
from agentrl.types import ScoredEpisode

log = logging.getLogger(__name__)


class AnyRollouts(Protocol):
    """What the training loop sees of rollouts, wherever they run."""

    async def collect(
        self, tickets: Sequence[Ticket], player: str | None = None, greedy: bool = False
    ) -> list[ScoredEpisode]:
        """See Rollouts.collect."""

    async def load_weights(self, path: Path, version: int) -> None:
        """See Rollouts.load_weights."""

    async def look(self) -> Progress:
        """How far the running collection is."""

    async def close(self) -> None:
        """End everything that was started."""


class LocalRollouts:
    """Rollouts in this process."""

    def __init__(self, rollouts: Rollouts) -> None:
        self._rollouts = rollouts
        self.collect = rollouts.collect
        self.load_weights = rollouts.load_weights
        self.close = rollouts.close

    async def look(self) -> Progress:
        """How far the running collection is."""
        return self._rollouts.progress


class RayRollouts:
    """Rollouts in Ray actors; groups are dealt to them in turn."""

    def __init__(self, actors: Sequence[Any], settings: RolloutConfig) -> None:
        self._actors = actors
        self._episode_s = settings.deadline_s
        self._start_s = settings.start_deadline_s
        self._max_refills = settings.max_refills

    async def start(self) -> None:
        """See Rollouts.start."""
        await asyncio.gather(
            *(self._call(actor.start.remote(), self._start_s) for actor in self._actors)
        )

    async def collect(
        self, tickets: Sequence[Ticket], player: str | None = None, greedy: bool = False
    ) -> list[ScoredEpisode]:
        """See Rollouts.collect."""
        parts = [
            (actor, share)
            for actor, share in zip(self._actors, self._deal(tickets), strict=True)
            if share
        ]
        played = await asyncio.gather(
            *(
                self._call(a.collect.remote(share, player, greedy), self._collect_deadline(share))
                for a, share in parts
            )
        )
        found: dict[Ticket, ScoredEpisode] = {}
        for (_, share), episodes in zip(parts, played, strict=True):
            found |= zip(share, episodes, strict=True)
        return [found[ticket] for ticket in tickets]

    def _deal(self, tickets: Sequence[Ticket]) -> list[list[Ticket]]:
        count = len(self._actors)
        return [[t for t in tickets if t.group % count == k] for k in range(count)]

    def _collect_deadline(self, share: Sequence[Ticket]) -> float:
        """Every episode has its own deadline; this one only catches a dead or hung actor."""
        return self._start_s + self._episode_s * (1 + len(share) + self._max_refills)

    async def load_weights(self, path: Path, version: int) -> None:
        """See Rollouts.load_weights."""
        await asyncio.gather(
            *(
                self._call(actor.load_weights.remote(path, version), self._start_s)
                for actor in self._actors
            )
        )

    async def look(self) -> Progress:
        """How far the running collection is."""
        seen = [await self._call(actor.look.remote(), self._start_s) for actor in self._actors]
        return sum(seen, start=Progress())

    async def _call(self, reference: Any, deadline_s: float) -> Any:
        import ray.exceptions

        try:
            async with asyncio.timeout(deadline_s):
                return await asyncio.wrap_future(reference.future())
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayActorError as error:
            raise WorldError(f"a rollout actor died: {error}") from None
        except TimeoutError:
            raise WorldError(f"a rollout actor did not answer within {deadline_s:g} s") from None

    async def close(self) -> None:
        """End the engines and phones, then the actors."""
        import ray

        for actor in self._actors:
            try:
                await self._call(actor.close.remote(), 30.0)
            except (WorldError, OSError) as error:
                log.warning("closing a rollout actor: %s", error)
            finally:
                ray.kill(actor)


class RolloutActor:
    """`Rollouts` in a process of its own."""

    def __init__(
        self,
        tree: dict[str, Any],
        folder: Path,
        run: Path | None,
        share: tuple[int, int],
    ) -> None:
        if run is not None:
            cluster.keep_words(run, f"rollout{share[0]}")
        self._rollouts = Rollouts(configuration.from_dict(tree), folder, run, share)

    async def start(self) -> None:
        """See Rollouts.start."""
        await self._rollouts.start()

    async def collect(
        self, tickets: Sequence[Ticket], player: str | None, greedy: bool
    ) -> list[ScoredEpisode]:
        """See Rollouts.collect."""
        return await self._rollouts.collect(tickets, player, greedy)

    async def load_weights(self, path: Path, version: int) -> None:
        """See Rollouts.load_weights."""
        await self._rollouts.load_weights(path, version)

    async def look(self) -> Progress:
        """How far the running collection is."""
        return self._rollouts.progress

    async def close(self) -> None:
        """See Rollouts.close."""
        await self._rollouts.close()


async def open_rollouts(config: Config, folder: Path, run: Path | None) -> AnyRollouts:
    """Start what plays episodes, as `rollout.launcher` says.

    Raises:
        ConfigError: Ray is not installed, or a phone cannot be reached.
    """
    if config.rollout.launcher == "local":
        rollouts = Rollouts(config, folder, run)
        try:
            await rollouts.start()
        except BaseException:
            await rollouts.close()
            raise
        return LocalRollouts(rollouts)
    return await _open_ray(config, folder, run)


async def _open_ray(config: Config, folder: Path, run: Path | None) -> AnyRollouts:
    ray = cluster.join_cluster()
    count = config.rollout.actors
    remote = ray.remote(RolloutActor).options(
        num_cpus=0,  # episodes wait more than they compute; the engine brings its own threads
        num_gpus=cluster.gpus_per_actor(count, config.train.ranks),
        max_concurrency=1000,
    )
    tree, here = configuration.to_dict(config), run and run.absolute()
    handle = RayRollouts(
        [remote.remote(tree, folder.absolute(), here, (k, count)) for k in range(count)],
        config.rollout,
    )
    try:
        await handle.start()
    except BaseException:
        await handle.close()
        raise
    return handle
