"""One pool of phones for several processes: kept by one Ray actor, borrowed from by others."""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agentrl import config as configuration
from agentrl.cluster import ray_cluster
from agentrl.config import Config
from agentrl.devices import Around
from agentrl.devices.pool import Borrower, DevicePool
from agentrl.devices.pool.lease import LeasedDevice, Lendable
from agentrl.devices.pool.lender import Ending, Grant
from agentrl.errors import LeaseLost
from agentrl.replay.live_phones import LivePhones
from agentrl.rollout.phone_pool import open_pool, opener_of, told_of

log = logging.getLogger(__name__)

_ANSWER_S = 30.0
"""For the keeper to answer, beyond what it was asked to wait."""
_BEATS = 3
"""Heartbeats in the time in which a lease expires."""


class KeeperActor:
    """A pool in a process of its own; a holder that falls silent loses its phone."""

    def __init__(self, tree: dict[str, Any], run: Path | None) -> None:
        if run is not None:
            ray_cluster.keep_words(run, "phones", ray_cluster.serials_in(tree))
        self._config = configuration.from_dict(tree)
        self._run = run
        self._pool: DevicePool | None = None
        self._live: LivePhones | None = None

    async def start(self) -> tuple[int, bool]:
        """Open the phones.

        Returns:
            How many there are, and whether more may come.

        Raises:
            ConfigError: a phone cannot be reached.
        """
        pool = await asyncio.to_thread(
            open_pool, self._config, lease_s=self._config.devices.lease_s
        )
        self._pool = pool
        if self._run is not None:
            self._live = LivePhones(self._run, "keeper", partial(told_of, pool))
        return len(pool), pool.grows

    async def take(self, deadline_s: float) -> Grant:
        """See Keeper.take."""
        return await self._opened.keeper.take(deadline_s)

    async def give_back(self, token: int, ending: Ending) -> None:
        """See Keeper.give_back."""
        await self._opened.keeper.give_back(token, ending)

    async def renew(self, tokens: Sequence[int]) -> list[int]:
        """See Keeper.renew."""
        return self._opened.keeper.renew(tokens)

    async def close(self) -> None:
        """End the phones that were started."""
        if self._live is not None:
            await asyncio.to_thread(self._live.close)
        if self._pool is not None:
            await asyncio.to_thread(self._pool.close)

    @property
    def _opened(self) -> DevicePool:
        assert self._pool is not None, "it was started"
        return self._pool


@dataclass(slots=True, kw_only=True, frozen=True)
class SharedPhones:
    """What a process needs to borrow phones."""

    keeper: Any
    """The handle of a KeeperActor."""
    count: int
    grows: bool


class SharedPool(Borrower):
    """Phones that another process keeps; they are reached from here.

    Args:
        phones: whose they are.
        config: the whole job.
        around: see `agentrl.devices.open_source`.
    """

    def __init__(
        self, phones: SharedPhones, config: Config, around: Around = lambda phone: phone
    ) -> None:
        super().__init__(_RemoteLender(phones.keeper))
        self._phones = phones
        self._opener = opener_of(config, around)
        self._is_virtual = str(config.devices.source).startswith("virtual")
        self._lease_s = config.devices.lease_s
        self._devices: dict[str, Lendable] = {}
        self._closing = threading.Event()
        # A thread: whatever keeps the event loop busy must not cost the phones.
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def __len__(self) -> int:
        return self._phones.count

    @property
    def grows(self) -> bool:
        """Whether more phones may come."""
        return self._phones.grows

    def close(self) -> None:
        """End all leases, and close the connections from here."""
        self._closing.set()
        for lease in list(self._leases.values()):
            lease.end()
        for device in self._devices.values():
            device.close()

    async def _opened(self, grant: Grant) -> LeasedDevice:
        device = self._devices.get(grant.serial)
        if device is None:
            device = await asyncio.to_thread(
                self._opener.open, grant.serial, known=self._is_virtual
            )
            self._devices[grant.serial] = device
        device.send_under(grant.token)
        lease = LeasedDevice(device, grant.name, until_s=0.0)
        if not await asyncio.to_thread(self._renew, {grant.token: lease}):
            raise LeaseLost(f"{grant.serial}: the lease expired before it began")
        return lease

    def _renew(self, leases: dict[int, LeasedDevice]) -> list[int]:
        """Those leases that go on."""
        import ray

        sent_s = time.monotonic()  # the keeper counts from later on
        asked = self._phones.keeper.renew.remote(list(leases))
        kept: list[int] = ray.get(asked, timeout=self._lease_s)
        for token in kept:
            leases[token].until_s = sent_s + self._lease_s
        return kept

    def _beat(self) -> None:
        import ray.exceptions

        while not self._closing.wait(self._lease_s / _BEATS):
            leases = dict(self._leases)
            try:
                if leases:
                    self._renew(leases)
            except ray.exceptions.RayError as error:  # they expire unless a later one arrives
                log.warning("no heartbeat: %s", ray_cluster.reason(error))


class _RemoteLender:
    """See Lender."""

    def __init__(self, keeper: Any) -> None:
        self._keeper = keeper

    async def take(self, deadline_s: float) -> Grant:
        asked = self._keeper.take.remote(deadline_s)
        waiting = asyncio.ensure_future(
            ray_cluster.answer(asked, "the keeper of the phones", deadline_s + _ANSWER_S)
        )
        try:
            grant: Grant = await asyncio.shield(waiting)
        except asyncio.CancelledError:
            waiting.add_done_callback(self._refuse)
            raise
        return grant

    async def give_back(self, token: int, ending: Ending) -> None:
        asked = self._keeper.give_back.remote(token, ending)
        await ray_cluster.answer(asked, "the keeper of the phones", _ANSWER_S)

    def _refuse(self, waiting: "asyncio.Future[Grant]") -> None:
        """Give back what comes after its taker has gone."""
        if not waiting.cancelled() and waiting.exception() is None:
            self._keeper.give_back.remote(waiting.result().token, Ending())
