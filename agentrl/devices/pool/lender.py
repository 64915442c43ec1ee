"""The protocol between a pool and the borrowers of its phones."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True, kw_only=True, frozen=True)
class LeaseGrant:
    """A phone leased to a borrower."""

    serial: str
    """The route by which it is reached."""
    token: int
    """Unique to this lease; later leases of the same phone have larger tokens."""

    @property
    def name(self) -> str:
        """Name of the lease; `open_device` accepts it instead of a serial."""
        return f"{self.serial}#{self.token}"


@dataclass(slots=True, kw_only=True, frozen=True)
class LeaseEnd:
    """How a lease ended."""

    good: bool = False
    """Whether it resets the count of failures."""
    error: str | None = None
    """What was wrong with the phone; None if nothing was."""
    taken: bool = False
    """Whether another job outside this pool uses the phone: its apps are not stopped then."""
    busy_s: float = 0.0
    """Seconds spent in calls."""
    launched: Collection[str] = ()
    """Packages of the apps that were started."""


class Lender(Protocol):
    """Leases phones, from this process or another."""

    async def acquire(self, deadline_s: float) -> LeaseGrant:
        """See agentrl.devices.pool.pool_manager.PoolManager.acquire."""

    async def release(self, token: int, ending: LeaseEnd) -> None:
        """See agentrl.devices.pool.pool_manager.PoolManager.release."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PoolOptions:
    """Quarantine, lease and reboot settings of a pool."""

    quarantine_after: int = 3
    """Failures in a row before a phone is quarantined."""
    quarantine_s: float = 30.0
    """Pause before a phone in quarantine is probed; doubles each time."""
    patience_s: float = 0.0
    """How long all phones may be in quarantine before the pool gives up."""
    lease_s: float = float("inf")
    """Duration of a lease that is not renewed."""
    reboot: bool = False
    """Whether a phone may be rebooted if nothing else helps."""
