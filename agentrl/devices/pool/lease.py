"""Leases of phones, each for one episode: the leased phone, and how a lease begins and ends.

Leases are granted and ended through the `Lender` protocol, from this process or another.
"""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from agentrl.devices.device import Device
from agentrl.devices.forwarding_device import ForwardingDevice
from agentrl.errors import AppLeft, ConfigError, DeviceError, LeaseLost, NoDevice, ScreenRotated
from agentrl.event_loop import BackgroundTasks

T = TypeVar("T")

_leases: "dict[str, LeasedDevice]" = {}
"""This process's leases by token, so that environments receive a token, not an object."""


class LeasableDevice(Device, Protocol):
    """A phone that can refuse commands sent under a lease that has ended."""

    def claim(self, token: int) -> None:
        """Make the phone refuse commands sent under any other lease."""

    def set_lease(self, token: int | None) -> None:
        """Send all further commands under this lease; None sends them without a lease check."""


class LeasedDevice(ForwardingDevice):
    """A `Device` for the duration of a lease; every later call is refused.

    This keeps a late command of the previous holder from reaching the phone in the next episode.
    """

    def __init__(self, device: Device, token: str, until_s: float = float("inf")) -> None:
        """Start a lease.

        Args:
            device: the phone.
            token: name of this lease; `open_device(token)` returns it in this process.
            until_s: expiry time on the monotonic clock; renewing the lease extends it.
        """
        super().__init__(device)
        self.token = token
        self.until_s = until_s
        self.launched: set[str] = set()
        """Packages of the apps that were started."""
        self.busy_s = 0.0
        """Seconds spent in calls so far."""
        self.failure: DeviceError | None = None
        """The phone's failure that the holder has handled; see `fail`."""
        self.doubtful = False
        """Whether the phone may have caused the episode to fail; see `doubt`."""
        self._ended = False
        self._lock = threading.Lock()
        _leases[token] = self

    @property
    def calling(self) -> bool:
        """Whether a call is in progress."""
        return self._lock.locked()

    def fail(self, error: DeviceError) -> None:
        """Report a failure of the phone without raising it from the lease's `with` block."""
        self.failure = error

    def doubt(self) -> None:
        """Mark that the episode failed in a way that the phone may have caused.

        The lease does not count as a failure, but does not reset the failure count either.
        """
        self.doubtful = True

    def end(self) -> None:
        """Refuse all further calls, after waiting for a call in progress."""
        with self._lock:
            self._ended = True
        _leases.pop(self.token, None)

    def _call(self, act: Callable[[], T]) -> T:
        # One call at a time, so that no call can reach the phone after `end` returns.
        with self._lock:
            start = time.monotonic()
            if self._ended or start >= self.until_s:
                how = "has ended" if self._ended else "has expired"
                raise LeaseLost(f"{self.serial}: lease {self.token} {how}; lease it again")
            try:
                return act()
            finally:
                self.busy_s += time.monotonic() - start

    def launch(self, package: str, activity: str, extras: Mapping[str, str]) -> None:
        """See `Device.launch`; the package counts as launched."""
        self.launched.add(package)
        super().launch(package, activity, extras)

    def close(self) -> None:
        """Do nothing: the pool closes the phone, not the holder of a lease."""


@dataclass(slots=True, kw_only=True, frozen=True)
class LeaseGrant:
    """A phone leased to a borrower."""

    serial: str
    """Serial of the route to the phone."""
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
    """Whether the lease resets the phone's failure count."""
    error: str | None = None
    """The phone's failure during the lease; None if it worked."""
    taken: bool = False
    """Whether a job outside this pool uses the phone, in which case its apps are not stopped."""
    busy_s: float = 0.0
    """Seconds spent in calls."""
    launched: Collection[str] = ()
    """Packages of the apps that were started."""

    @staticmethod
    def after(failure: DeviceError) -> "LeaseEnd":
        """Return how a lease ends in which this error was raised."""
        if isinstance(failure, AppLeft | ScreenRotated):  # not a failure of the phone
            return LeaseEnd()
        error = f"{type(failure).__name__}: {failure}"
        return LeaseEnd(error=error, taken=isinstance(failure, LeaseLost))


class Lender(Protocol):
    """Leases phones, from this process or another."""

    async def acquire(self, deadline_s: float) -> LeaseGrant:
        """See agentrl.devices.pool.pool_manager.PoolManager.acquire."""

    async def release(self, token: int, ending: LeaseEnd) -> None:
        """See agentrl.devices.pool.pool_manager.PoolManager.release."""


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
        """End all leases and close the phones opened here."""

    @asynccontextmanager
    async def lease(self, deadline_s: float) -> AsyncIterator[LeasedDevice]:
        """Lease the phone that has been idle longest for the duration of a `with` block.

        A DeviceError that leaves the `with` block, or is reported with `LeasedDevice.fail`, counts
        as a failure of the phone, except for AppLeft and ScreenRotated. A good lease resets the
        failure count, unless it was doubted (`LeasedDevice.doubt`) or a call to the phone was still
        running when it ended.
        """
        grant = await self._lender.acquire(deadline_s)
        ending = LeaseEnd()
        lease: LeasedDevice | None = None
        try:
            try:
                lease = self._leases[grant.token] = await self._opened(grant)
            except (DeviceError, ConfigError) as error:
                raise NoDevice(
                    f"{grant.serial} was leased but cannot be opened: "
                    f"{type(error).__name__}: {error}"
                ) from error
            yield lease
            if lease.failure is not None:
                ending = LeaseEnd.after(lease.failure)
            else:
                ending = LeaseEnd(good=not (lease.doubtful or lease.calling))
        except DeviceError as error:
            ending = LeaseEnd.after(error)
            raise
        finally:
            # Shield the release, because a canceled episode must still return its phone.
            await asyncio.shield(self._tasks.start(self._release(grant, lease, ending)))

    async def _release(
        self, grant: LeaseGrant, lease: LeasedDevice | None, ending: LeaseEnd
    ) -> None:
        if lease is not None:
            # In a thread, because a call still in progress must not block the event loop.
            await asyncio.to_thread(lease.end)
            ending = replace(ending, busy_s=lease.busy_s, launched=tuple(lease.launched))
        self._leases.pop(grant.token, None)
        await self._lender.release(grant.token, ending)


def find_lease(token: str) -> LeasedDevice | None:
    """Return this process's lease with the given token, or None."""
    return _leases.get(token)
