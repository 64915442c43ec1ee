"""The phones that this process manages and leases."""

from agentrl.devices.pool.lease import Borrower, LeasedDevice, LeaseGrant
from agentrl.devices.pool.lease_ledger import DeviceStats
from agentrl.devices.pool.pool_manager import PoolManager


class DevicePool(Borrower):
    """Phones that this process manages and leases.

    A phone whose lease ended in a DeviceError is recovered (`agentrl.devices.pool.recovery`) before
    it is leased again. A phone that does not answer, or fails several times in a row, is
    quarantined and probed again after growing pauses.
    """

    def __init__(self, manager: PoolManager) -> None:
        """Create a pool of the manager's phones; closing the pool closes the manager."""
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
        """Return one row per phone."""
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
