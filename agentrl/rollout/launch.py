"""Rollouts in this process, or lifted into Ray actors: the same calls."""

import asyncio
import logging
import math
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

_CLOSE_S = 30.0
"""For an actor to end its engine and phones by itself; then it is killed, and they with it."""


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
        self._settings = settings
        self._start_s = settings.start_deadline_s
        self._in_flight = [1] * len(actors)
        """Episodes that each actor plays at the same time."""

    async def start(self) -> None:
        """See Rollouts.start."""
        self._in_flight = await asyncio.gather(
            *(self._call(k, self._start_s, "start") for k in range(len(self._actors)))
        )

    async def collect(
        self, tickets: Sequence[Ticket], player: str | None = None, greedy: bool = False
    ) -> list[ScoredEpisode]:
        """See Rollouts.collect."""
        shares = {k: share for k, share in enumerate(self._deal(tickets)) if share}
        played = await asyncio.gather(
            *(self._collect(k, share, player, greedy) for k, share in shares.items())
        )
        found: dict[Ticket, ScoredEpisode] = {}
        for share, episodes in zip(shares.values(), played, strict=True):
            found |= zip(share, episodes, strict=True)
        return [found[ticket] for ticket in tickets]

    def _deal(self, tickets: Sequence[Ticket]) -> list[list[Ticket]]:
        count = len(self._actors)
        return [[t for t in tickets if t.group % count == k] for k in range(count)]

    async def _collect(
        self, number: int, share: Sequence[Ticket], player: str | None, greedy: bool
    ) -> list[ScoredEpisode]:
        deadline_s = collect_deadline_s(len(share), self._in_flight[number], self._settings)
        episodes: list[ScoredEpisode] = await self._call(
            number, deadline_s, "collect", share, player, greedy
        )
        return episodes

    async def load_weights(self, path: Path, version: int) -> None:
        """See Rollouts.load_weights."""
        await asyncio.gather(
            *(
                self._call(k, self._start_s, "load_weights", path, version)
                for k in range(len(self._actors))
            )
        )

    async def look(self) -> Progress:
        """How far the running collection is."""
        seen = [await self._call(k, self._start_s, "look") for k in range(len(self._actors))]
        return sum(seen, start=Progress())

    async def _call(self, number: int, deadline_s: float, method: str, *arguments: Any) -> Any:
        import ray.exceptions

        reference = getattr(self._actors[number], method).remote(*arguments)
        try:
            async with asyncio.timeout(deadline_s):
                return await asyncio.wrap_future(reference.future())
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayActorError as error:
            raise WorldError(f"rollout actor {number} died: {_reason(error)}") from None
        except TimeoutError:
            raise WorldError(
                f"rollout actor {number} did not answer within {deadline_s:g} s"
            ) from None

    async def close(self) -> None:
        """End the engines and phones, then the actors."""
        await asyncio.gather(*(self._end(k) for k in range(len(self._actors))))

    async def _end(self, number: int) -> None:
        import ray

        try:
            await self._call(number, min(_CLOSE_S, self._start_s), "close")
        except Exception as error:  # it is killed either way
            log.warning("closing rollout actor %d: %s", number, error)
        finally:
            ray.kill(self._actors[number])


def _reason(error: Exception) -> str:
    """The last line of Ray's many, without its guesses at what may have been."""
    last = str(error).rpartition("\n")[2]
    return last.partition(" Some common causes")[0]


def collect_deadline_s(episodes: int, in_flight: int, settings: RolloutConfig) -> float:
    """How long an actor may take for some episodes; only one that hangs takes longer.

    Every episode and its scoring have deadlines of their own. As many waves of them are played as
    their number asks for; refills may come one after the other, all for the same ticket.

    Args:
        episodes: to be played.
        in_flight: that it plays at the same time.
        settings: the deadlines, and how many refills there may be.

    Returns:
        Seconds, those included in which the engine comes up.
    """
    waves = math.ceil(episodes / in_flight) + settings.max_refills
    each_s = settings.deadline_s + settings.reward_deadline_s
    return settings.start_deadline_s + waves * each_s


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
            source = tree["devices"]["source"]
            serials = [source] if isinstance(source, str) else source
            cluster.keep_words(run, f"rollout{share[0]}", serials)
        self._rollouts = Rollouts(configuration.from_dict(tree), folder, run, share)

    async def start(self) -> int:
        """See Rollouts.start.

        Returns:
            How many episodes it plays at the same time.
        """
        await self._rollouts.start()
        return self._rollouts.worlds.count

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


async def open_rollouts(config: Config, folder: Path | None, run: Path | None) -> AnyRollouts:
    """Start what plays episodes, as `rollout.launcher` says.

    Args:
        config: the whole job.
        folder: of the model; None where scripted players alone play, always in this process.
        run: the run's folder; None records nothing.

    Raises:
        ConfigError: Ray is not installed, or a phone cannot be reached.
    """
    if config.rollout.launcher == "local" or folder is None:
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
