"""Leases phones to episodes, each to one episode at a time."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from agentrl.devices.pool.lease import LeasedDevice, LeaseEnd, LeaseGrant, Lender
from agentrl.devices.pool.lease_ledger import DeviceStats
from agentrl.devices.pool.pool_manager import PoolManager
from agentrl.errors import AppLeft, ConfigError, DeviceError, LeaseLost, NoDevice, ScreenRotated
from agentrl.event_loop import BackgroundTasks


class Borrower(ABC):
    """Leases phones to the episodes of one event loop, from a pool here or elsewhere."""

    def __init__(self, lender: Lender) -> None:
        self._lender = lender
        self._leases: dict[int, LeasedDevice] = {}
        self._tasks = BackgroundTasks()

    @abstractmethod
    def __len__(self) -> int:
        """Number of phones, including those in quarantine."""

    @property
    @abstractmethod
    def grows(self) -> bool:
        """Whether more phones may join."""

    @abstractmethod
    async def _opened(self, grant: LeaseGrant) -> LeasedDevice:
        """Open the phone of a grant."""

    @abstractmethod
    def close(self) -> None:
        """End all leases, and close what was opened here."""

    @asynccontextmanager
    async def lease(self, deadline_s: float) -> AsyncIterator[LeasedDevice]:
        """Lease a phone for the duration of a `with`; the one idle longest comes first.

        A DeviceError that leaves the `with` counts as a failure of the phone, except for AppLeft
        and ScreenRotated. A good lease resets the count of failures, unless it was doubted
        (`LeasedDevice.doubt`) or a call to the phone was still running at its end.

        Args:
            deadline_s: how long to wait for a free phone.
        """
        grant = await self._lender.acquire(deadline_s)
        ending = LeaseEnd()
        lease: LeasedDevice | None = None
        try:
            try:
                lease = self._leases[grant.token] = await self._opened(grant)
            except (DeviceError, ConfigError) as error:
                raise NoDevice(f"{grant.serial} was leased but is unreachable: {error}") from error
            yield lease
            ending = LeaseEnd(good=not (lease.doubtful or lease.calling))
        except (AppLeft, ScreenRotated):  # not a failure of the phone
            raise
        except LeaseLost as error:
            ending = LeaseEnd(error=f"{type(error).__name__}: {error}", taken=True)
            raise
        except DeviceError as error:
            ending = LeaseEnd(error=f"{type(error).__name__}: {error}")
            raise
        finally:
            # Shielded: a canceled episode must still return its phone.
            await asyncio.shield(self._tasks.start(self._release(grant, lease, ending)))

    async def _release(
        self, grant: LeaseGrant, lease: LeasedDevice | None, ending: LeaseEnd
    ) -> None:
        if lease is not None:
            # In a thread: a call of the old holder may still run and must not block the loop.
            await asyncio.to_thread(lease.end)
            ending = replace(ending, busy_s=lease.busy_s, launched=tuple(lease.launched))
        self._leases.pop(grant.token, None)
        await self._lender.release(grant.token, ending)


class DevicePool(Borrower):
    """Phones that this process manages and leases.

    A phone whose lease ended in a DeviceError is recovered (`agentrl.devices.pool.recovery`) before
    it is leased again. One that does not answer, or fails several times in a row, is quarantined
    and probed again after growing pauses.
    """

    def __init__(self, manager: PoolManager) -> None:
        """A pool of the manager's phones; closing the pool closes the manager."""
        self.manager = manager
        super().__init__(manager)

    def __len__(self) -> int:
        return len(self.manager)

    @property
    def grows(self) -> bool:
        """Whether more phones may join."""
        return self.manager.grows

    @property
    def serials(self) -> tuple[str, ...]:
        """Serials of all phones, including those in quarantine."""
        return self.manager.ledger.phones

    def stats(self) -> list[DeviceStats]:
        """One row per phone."""
        running = {token: lease.busy_s for token, lease in list(self._leases.items())}
        return self.manager.ledger.stats(running)

    def close(self) -> None:
        """End all leases and close the phones; ends virtual phones started for the pool."""
        for lease in list(self._leases.values()):
            lease.end()
        self.manager.close()

    def __enter__(self) -> "DevicePool":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def _opened(self, grant: LeaseGrant) -> LeasedDevice:
        device = self.manager.routes.device(grant.serial)
        device.set_lease(grant.token)
        return LeasedDevice(device, grant.name)
