"""Phones lent to episodes: one at a time to one, tired ones put aside, their time accounted for."""

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agentrl.devices.lease import LeasedDevice
from agentrl.devices.protocol import Device
from agentrl.errors import ConfigError, DeviceError, NoDevice, PoolEmpty

log = logging.getLogger(__name__)

_numbers = itertools.count(1)
_RECONNECT_PAUSE_S = 0.25


@dataclass(slots=True, kw_only=True, frozen=True)
class DeviceStats:
    """What a phone has been through since the pool was opened."""

    serial: str
    leases: int
    failures: int
    """Leases that a DeviceError ended."""
    quarantined: bool
    leased_share: float
    """Share of the time that it was lent, in [0, 1]."""
    busy_s: float
    """Seconds that calls took."""
    busy_share: float
    """Share of the time that it was carrying out calls, in [0, 1]."""


@dataclass(slots=True, kw_only=True)
class _Shelf:
    """One phone in the pool."""

    device: Device
    lease: LeasedDevice | None = None
    leased_at_s: float = 0.0
    leases: int = 0
    failures: int = 0
    failures_in_a_row: int = 0
    quarantined: bool = False
    mending: bool = False
    leased_s: float = 0.0
    busy_s: float = 0.0


class DevicePool:
    """Lends phones to the episodes of one event loop.

    A phone whose lease ended in a DeviceError is connected anew before it is lent again. One
    whose leases do so several times in a row is put into quarantine and not lent again.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        *,
        quarantine_after: int = 3,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """A pool of phones, all free.

        Args:
            devices: connected phones; the pool closes them.
            quarantine_after: failures in a row that put a phone aside.
            on_close: called last when the pool is closed.
        """
        self.quarantine_after = quarantine_after
        self._shelves = [_Shelf(device=device) for device in devices]
        self._free: list[_Shelf] = list(self._shelves)
        self._waiting: list[asyncio.Future[_Shelf]] = []
        self._tasks: set[asyncio.Future[None]] = set()
        self._on_close = on_close
        self._closing = threading.Event()
        self._last_failure = ""
        self._opened_s = time.monotonic()

    def __len__(self) -> int:
        return len(self._shelves)

    @property
    def serials(self) -> tuple[str, ...]:
        """Of all phones, those in quarantine too."""
        return tuple(shelf.device.serial for shelf in self._shelves)

    @asynccontextmanager
    async def lease(self, deadline_s: float) -> AsyncIterator[LeasedDevice]:
        """Borrow a phone for the length of a `with`; longest idle first.

        A DeviceError that leaves the `with` counts against the phone. A lease that ends well
        makes up for earlier ones, unless it was doubted (`LeasedDevice.doubt`) or a call to the
        phone was still running at its end.

        Args:
            deadline_s: how long to wait for a free one.

        Raises:
            NoDevice: none became free in time; a later lease may find one.
            PoolEmpty: all are in quarantine.
        """
        shelf = await self._take(deadline_s)
        shelf.lease = LeasedDevice(shelf.device, f"{shelf.device.serial}#{next(_numbers)}")
        shelf.leased_at_s = time.monotonic()
        shelf.leases += 1
        failed = False
        try:
            yield shelf.lease
            if not (shelf.lease.doubtful or shelf.lease.calling):
                shelf.failures_in_a_row = 0
        except DeviceError as error:
            failed = True
            self._count_failure(shelf, error)
            raise
        finally:
            # A task of its own: a cancelled episode must not lose its phone.
            await asyncio.shield(self._task(self._give_back(shelf, failed)))

    def stats(self) -> list[DeviceStats]:
        """One row per phone."""
        now = time.monotonic()
        past = max(now - self._opened_s, 1e-9)
        rows = []
        for shelf in self._shelves:
            leased_s, busy_s = shelf.leased_s, shelf.busy_s
            if shelf.lease is not None:
                leased_s += now - shelf.leased_at_s
                busy_s += shelf.lease.busy_s
            rows.append(
                DeviceStats(
                    serial=shelf.device.serial,
                    leases=shelf.leases,
                    failures=shelf.failures,
                    quarantined=shelf.quarantined,
                    leased_share=min(leased_s / past, 1.0),
                    busy_s=busy_s,
                    busy_share=min(busy_s / past, 1.0),
                )
            )
        return rows

    def close(self) -> None:
        """End all leases and close the phones; virtual ones that were started for it end."""
        self._closing.set()
        for shelf in self._shelves:
            if shelf.lease is not None:
                shelf.lease.end()
            shelf.device.close()
        self._on_close()
        self._on_close = lambda: None

    def __enter__(self) -> "DevicePool":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def _take(self, deadline_s: float) -> _Shelf:
        if all(shelf.quarantined for shelf in self._shelves):
            raise PoolEmpty(self._nobody("all phones failed repeatedly"))
        if self._free:
            return self._free.pop(0)
        place: asyncio.Future[_Shelf] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await asyncio.wait({place}, timeout=deadline_s)
            if not place.done():
                raise NoDevice(self._nobody(f"none became free in {deadline_s:g} s"))
            return place.result()
        except asyncio.CancelledError:
            # Handed over in the very moment that its taker gave up: the next one gets it.
            if place.done() and place.exception() is None:
                self._offer(place.result())
            raise
        finally:
            self._waiting = [other for other in self._waiting if other is not place]

    def _offer(self, shelf: _Shelf) -> None:
        """Hand a phone to who waits longest, or keep it for who comes."""
        for place in self._waiting:
            if not place.done():
                place.set_result(shelf)
                return
        self._free.append(shelf)

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _give_back(self, shelf: _Shelf, failed: bool) -> None:
        lease, shelf.lease = shelf.lease, None
        assert lease is not None
        shelf.leased_s += time.monotonic() - shelf.leased_at_s
        # In a thread: a call of the old holder may still run, and the loop must not stop for it.
        await asyncio.to_thread(lease.end)
        shelf.busy_s += lease.busy_s
        if shelf.quarantined:
            self._tell_if_nobody_is_left()
        elif failed:
            self._task(self._mend(shelf))  # who failed need not wait for it
        else:
            self._offer(shelf)

    async def _mend(self, shelf: _Shelf) -> None:
        """Offer a phone that failed when it is connected again, or was not in time."""
        shelf.mending = True
        try:
            await asyncio.to_thread(self._reconnect, shelf.device)
        finally:
            shelf.mending = False
            self._offer(shelf)

    def _reconnect(self, device: Device) -> None:
        """Try until it is connected or its deadline has passed; the next lease finds out."""
        end = time.monotonic() + device.deadlines.connect_s
        while not self._closing.is_set():
            try:
                device.reconnect()
                return
            except (DeviceError, ConfigError) as error:
                if time.monotonic() >= end:
                    log.warning("%s is not connected again: %s", device.serial, error)
                    return
            self._closing.wait(_RECONNECT_PAUSE_S)

    def _count_failure(self, shelf: _Shelf, error: DeviceError) -> None:
        shelf.failures += 1
        shelf.failures_in_a_row += 1
        self._last_failure = f"{shelf.device.serial}: {error}"
        if shelf.failures_in_a_row >= self.quarantine_after:
            shelf.quarantined = True
            times, serial = shelf.failures_in_a_row, shelf.device.serial
            log.warning("%s is in quarantine after %d failures in a row: %s", serial, times, error)

    def _tell_if_nobody_is_left(self) -> None:
        if all(shelf.quarantined for shelf in self._shelves):
            for place in self._waiting:
                if not place.done():
                    place.set_exception(PoolEmpty(self._nobody("all phones failed repeatedly")))

    def _nobody(self, why: str) -> str:
        leased = sum(shelf.lease is not None for shelf in self._shelves)
        mending = sum(shelf.mending for shelf in self._shelves)
        aside = sum(shelf.quarantined for shelf in self._shelves)
        last = f" The last failure: {self._last_failure}" if self._last_failure else ""
        return (
            f"no phone to lease: {why}; of {len(self)}, {leased} are leased, {mending} being "
            f"reconnected and {aside} in quarantine. Add phones (devices.source) or lower "
            f"rollout.concurrency.{last}"
        )
