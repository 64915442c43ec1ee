"""Where episodes are played: on phones from a pool, or in environments of this process."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from agentrl.config import Config, EnvConfig
from agentrl.devices.pool import Borrower
from agentrl.errors import AppLeft, DeviceError, NoDevice, PoolEmpty
from agentrl.phone_page import Pager
from agentrl.replay.live_phones import LivePhones
from agentrl.rollout.env_arguments import env_of, game_of, with_allowed
from agentrl.rollout.env_processes import EnvProcesses
from agentrl.rollout.env_runner import World
from agentrl.rollout.episode_request import Split
from agentrl.rollout.phone_pool import open_pool
from agentrl.rollout.shared_phones import SharedPhones, SharedPool
from agentrl.types import Episode, Image, Outcome
from agentrl.virtual_phone.spec import AppSpec

log = logging.getLogger(__name__)

KeepFrame = Callable[[Image], str] | None
Act = Callable[[World], Awaitable[Episode]]
Settings = Callable[[Split], EnvConfig]


class Worlds(Protocol):
    """Some places that episodes can be played in at the same time."""

    count: int
    """Episodes at the same time, at most."""
    count_at_least: int
    """Of these, those that wait for nobody else."""

    async def visit(self, act: Act, split: Split = "train") -> Episode:
        """Play one episode in a world that nobody else uses meanwhile.

        Args:
            act: plays it.
            split: what the episode is for; held-out ones may have settings of their own.

        Raises:
            NoDevice: no phone is left to play on, or none became free again and again.
        """

    def close(self) -> None:
        """End everything that was started."""


class PhoneWorlds:
    """One world per lease of a phone.

    Args:
        settings: of the environment, by what is played.
        pool: of phones; is closed with this.
        keep_frame: see World.
        lease_s: how long an episode waits for a phone.
        count: episodes at the same time, at most.
        sharers: how many processes play on these phones.
        on_close: called when the phones are closed.
        live: is told what each phone shows; None tells nobody.
    """

    def __init__(
        self,
        settings: Settings,
        pool: Borrower,
        keep_frame: KeepFrame,
        lease_s: float,
        count: int,
        sharers: int = 1,
        on_close: Callable[[], None] = lambda: None,
        live: LivePhones | None = None,
    ) -> None:
        self.pool = pool
        self._live = live
        self.count = count if pool.grows else min(count, len(pool))
        self.count_at_least = max(1, min(count, len(pool) // sharers))
        self._settings = settings
        self._keep_frame = keep_frame
        self._lease_s = lease_s
        self._on_close = on_close

    async def visit(self, act: Act, split: Split = "train") -> Episode:
        """See Worlds.visit; an episode that the phone spoiled counts against it."""
        for _ in range(len(self.pool)):
            try:
                return await self._visit(act, split)
            except PoolEmpty:
                raise
            except NoDevice as error:  # the others may be quick, and this phone may come back
                log.warning("%s", error)
                busy = error
        raise busy

    async def _visit(self, act: Act, split: Split) -> Episode:
        episode: Episode | None = None
        try:
            async with self.pool.lease(self._lease_s) as lease:
                config = self._settings(split)
                world = World(config, self._keeper(lease.serial), lease.serial, lease.token)
                try:
                    episode = await act(world)
                finally:
                    world.close()
                if episode.outcome is Outcome.TIMEOUT:
                    lease.doubt()
                if episode.outcome is Outcome.DEVICE_ERROR:
                    left = (episode.error or "").startswith(AppLeft.__name__)
                    raise (AppLeft if left else DeviceError)(episode.error)
        except DeviceError:
            if episode is None:
                raise
        return episode

    def _keeper(self, serial: str) -> KeepFrame:
        """Stores the frames of one phone, and tells of them."""
        keep, live = self._keep_frame, self._live
        if keep is None or live is None:
            return keep

        def keep_and_tell(image: Image) -> str:
            frame = keep(image)
            live.frame(serial, frame)
            return frame

        return keep_and_tell

    def close(self) -> None:
        """End the phones that were started."""
        self.pool.close()
        self._on_close()


class RoomWorlds:
    """Environments without a phone, each kept for many episodes.

    Args:
        settings: of the environment, by what is played.
        keep_frame: see World.
        count: episodes at the same time, at most.
        processes: that play them; None plays them in threads of this one.
        deadline_s: for one call to an environment in another process.
    """

    def __init__(
        self,
        settings: Settings,
        keep_frame: KeepFrame,
        count: int,
        processes: EnvProcesses | None = None,
        deadline_s: float = 60.0,
    ) -> None:
        self.count = self.count_at_least = count
        self._processes = processes
        self._deadline_s = deadline_s
        self._settings = settings
        self._keep_frame = keep_frame
        self._free: dict[Split, list[World]] = defaultdict(list)
        self._seats = asyncio.Semaphore(count)

    async def visit(self, act: Act, split: Split = "train") -> Episode:
        """See Worlds.visit; a world that failed is given up."""
        async with self._seats:
            free = self._free[split]
            world = free.pop() if free else self._open(split)
            try:
                episode = await act(world)
            except BaseException:
                world.close()
                raise
            if episode.outcome.void:
                world.close()
            else:
                free.append(world)
            return episode

    def _open(self, split: Split) -> World:
        config, processes = self._settings(split), self._processes
        if processes is None:
            return World(config, self._keep_frame)
        make = partial(processes.make, deadline_s=self._deadline_s)
        return World(config, self._keep_frame, make=make)

    def close(self) -> None:
        """Close all environments."""
        for free in self._free.values():
            while free:
                free.pop().close()
        if self._processes is not None:
            self._processes.close()


def open_worlds(
    config: Config,
    keep_frame: KeepFrame,
    share: tuple[int, int],
    phones: SharedPhones | None = None,
    live: LivePhones | None = None,
) -> Worlds:
    """The places that the configuration names.

    Args:
        config: the whole job.
        keep_frame: see World.
        share: (k, n): this process plays the k-th of n parts.
        phones: who keeps them for all parts; None where there is one part.
        live: is told what each phone shows; None tells nobody.

    Raises:
        ConfigError: a phone cannot be reached.
    """
    _, n = share
    count = max(1, config.rollout.concurrency // n)
    game = game_of(config.env)
    if game.app is None:
        processes = EnvProcesses(config.env.processes) if config.env.processes else None
        deadline_s = config.rollout.deadline_s
        return RoomWorlds(
            lambda split: env_of(config, split), keep_frame, count, processes, deadline_s
        )
    assert n == 1 or phones is not None, "somebody keeps what is shared"
    pager = Pager([AppSpec(app=game.app)], config.devices.app)
    try:
        pool = (
            open_pool(config, pager.around)
            if phones is None
            else SharedPool(phones, config, pager.around)
        )
    except BaseException:
        pager.close()
        raise

    def settings(split: Split) -> EnvConfig:
        return with_allowed(env_of(config, split), config.devices.allow)

    lease_s = config.rollout.deadline_s
    return PhoneWorlds(
        settings, pool, keep_frame, lease_s, count, n, on_close=pager.close, live=live
    )
