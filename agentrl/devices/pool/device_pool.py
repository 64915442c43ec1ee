"""Phones lent to episodes: one at a time to one, and refused to all others meanwhile."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from agentrl.devices.pool.background_tasks import Tasks
from agentrl.devices.pool.lease import LeasedDevice
from agentrl.devices.pool.lease_ledger import DeviceStats
from agentrl.devices.pool.lender import Ending, Grant, Lender
from agentrl.devices.pool.pool_manager import Keeper
from agentrl.errors import AppLeft, ConfigError, DeviceError, LeaseLost, NoDevice, ScreenTurned


class Borrower(ABC):
    """Lends phones to the episodes of one event loop; whoever keeps them."""

    def __init__(self, lender: Lender) -> None:
        """Nothing is borrowed yet."""
        self._lender = lender
        self._leases: dict[int, LeasedDevice] = {}
        self._tasks = Tasks()

    @abstractmethod
    def __len__(self) -> int:
        """How many phones there are, those in quarantine too."""

    @property
    @abstractmethod
    def grows(self) -> bool:
        """Whether more phones may come."""

    @abstractmethod
    async def _opened(self, grant: Grant) -> LeasedDevice:
        """The phone of a grant, for as long as it lasts.

        Raises:
            DeviceError: it cannot be connected.
        """

    @abstractmethod
    def close(self) -> None:
        """End all leases, and close what was opened here."""

    @asynccontextmanager
    async def lease(self, deadline_s: float) -> AsyncIterator[LeasedDevice]:
        """Borrow a phone for the length of a `with`; longest idle first.

        A DeviceError that leaves the `with` counts against the phone, except for AppLeft and
        ScreenTurned. A lease that ends well makes up for earlier ones, unless it was doubted
        (`LeasedDevice.doubt`) or a call to the phone was still running at its end.

        Args:
            deadline_s: how long to wait for a free one.

        Raises:
            NoDevice: none became free in time, or it could not be reached; a later lease may find
                one.
            PoolEmpty: all are in quarantine.
        """
        grant = await self._lender.take(deadline_s)
        ending = Ending()
        lease: LeasedDevice | None = None
        try:
            lease = self._leases[grant.token] = await self._reached(grant)
            yield lease
            ending = Ending(good=not (lease.doubtful or lease.calling))
        except (AppLeft, ScreenTurned):  # the phone did what it was told
            raise
        except LeaseLost as error:
            ending = Ending(error=str(error), taken=True)
            raise
        except DeviceError as error:
            ending = Ending(error=str(error))
            raise
        finally:
            # A task of its own: a cancelled episode must not lose its phone.
            await asyncio.shield(self._tasks.start(self._give_back(grant, lease, ending)))

    async def _reached(self, grant: Grant) -> LeasedDevice:
        try:
            return await self._opened(grant)
        except (DeviceError, ConfigError) as error:
            raise NoDevice(f"{grant.serial} is lent and cannot be reached: {error}") from error

    async def _give_back(self, grant: Grant, lease: LeasedDevice | None, ending: Ending) -> None:
        if lease is not None:
            # In a thread: a call of the old holder may still run, and the loop must not stop.
            await asyncio.to_thread(lease.end)
            ending = replace(ending, busy_s=lease.busy_s, launched=tuple(lease.launched))
        self._leases.pop(grant.token, None)
        await self._lender.give_back(grant.token, ending)


class DevicePool(Borrower):
    """Phones that this process keeps and lends.

    A phone whose lease ended in a DeviceError is mended (`agentrl.devices.pool.recovery`) before it
    is lent again. One that does not answer, or fails several times in a row, is put into
    quarantine and tried again after pauses that grow.
    """

    def __init__(self, keeper: Keeper) -> None:
        """A pool of the keeper's phones, who is closed with it."""
        self.keeper = keeper
        super().__init__(keeper)

    def __len__(self) -> int:
        return len(self.keeper)

    @property
    def grows(self) -> bool:
        """Whether more phones may come."""
        return self.keeper.grows

    @property
    def serials(self) -> tuple[str, ...]:
        """Of all phones, those in quarantine too."""
        return self.keeper.ledger.phones

    def stats(self) -> list[DeviceStats]:
        """One row per phone."""
        running = {token: lease.busy_s for token, lease in list(self._leases.items())}
        return self.keeper.ledger.stats(running)

    def close(self) -> None:
        """End all leases and close the phones; virtual ones that were started for it end."""
        for lease in list(self._leases.values()):
            lease.end()
        self.keeper.close()

    def __enter__(self) -> "DevicePool":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def _opened(self, grant: Grant) -> LeasedDevice:
        device = self.keeper.ways.device(grant.serial)
        device.send_under(grant.token)
        return LeasedDevice(device, grant.name)
