"""What those who keep phones and those who borrow them tell each other."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True, kw_only=True, frozen=True)
class Grant:
    """A phone that is lent."""

    serial: str
    """By which it is reached."""
    token: int
    """Of this lease alone; later leases of the same phone have larger ones."""

    @property
    def name(self) -> str:
        """Of the lease; `open_device` takes it in the place of a serial."""
        return f"{self.serial}#{self.token}"


@dataclass(slots=True, kw_only=True, frozen=True)
class Ending:
    """How a lease has ended."""

    good: bool = False
    """It makes up for earlier failures."""
    error: str | None = None
    """What was wrong with the phone; None where nothing was."""
    taken: bool = False
    """Whether somebody else has it, outside of this pool: nothing may be done to it."""
    busy_s: float = 0.0
    """Seconds that calls took."""
    launched: Collection[str] = ()
    """Packages of the apps that were started."""


class Lender(Protocol):
    """Lends phones; in this process, or from another."""

    async def take(self, deadline_s: float) -> Grant:
        """See agentrl.devices.pool.pool_manager.Keeper.take."""

    async def give_back(self, token: int, ending: Ending) -> None:
        """See agentrl.devices.pool.pool_manager.Keeper.give_back."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PoolOptions:
    """How patient a pool is with its phones."""

    quarantine_after: int = 3
    """Failures in a row that put a phone aside."""
    quarantine_s: float = 30.0
    """Before a phone in quarantine is tried again; twice as long each time."""
    patience_s: float = 0.0
    """For so long all phones may be in quarantine at once."""
    lease_s: float = float("inf")
    """For so long a lease lasts that is not renewed."""
    reboot: bool = False
    """Whether a phone that nothing else helps may be started again."""
