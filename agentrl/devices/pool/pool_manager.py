"""Manages the phones of a pool: leases them, recovers failed ones, and admits newcomers."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from agentrl.devices.adb import AdbServer
from agentrl.devices.phone_battery import BatteryWatch
from agentrl.devices.pool.connection_routes import ConnectionRoutes
from agentrl.devices.pool.device_tracker import DeviceTracker
from agentrl.devices.pool.lease import Borrower, LeasableDevice, LeasedDevice, LeaseEnd, LeaseGrant
from agentrl.devices.pool.lease_ledger import DeviceStats, LeaseLedger, PhoneAvailability
from agentrl.devices.pool.phones_in_use import PhonesInUse
from agentrl.devices.pool.recovery import RecoveryLadder
from agentrl.errors import BatteryError, ConfigError, DeviceError, NoDevice, PoolEmpty
from agentrl.event_loop import BackgroundTasks

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK_S = 0.1
"""Interval between checks for expired leases and phones to probe."""
_ADMIT_AGAIN_S = 10.0
"""Pause before retrying a newcomer that could not be used."""
_NOTICE_S = 60.0
"""Interval between warnings that no phone works."""
_AT_ONCE = 16
"""Maximum number of phones recovered at the same time."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PoolOptions:
    """Quarantine, lease and reboot settings of a pool."""

    quarantine_after: int = 3
    """Failures in a row before a phone is quarantined."""
    quarantine_s: float = 30.0
    """Pause before a quarantined phone is probed; doubles each time."""
    patience_s: float = 0.0
    """Seconds for which all phones may be in quarantine before the pool gives up."""
    lease_s: float = float("inf")
    """Duration of a lease that is not renewed."""
    reboot: bool = False
    """Whether a phone may be rebooted if nothing else helps."""


class PoolManager:
    """Leases phones to holders that may crash at any time; runs on one event loop."""

    def __init__(
        self,
        phones: Iterable[Sequence[LeasableDevice]],
        options: PoolOptions,
        *,
        server: AdbServer | None = None,
        open_newcomer: Callable[[str], LeasableDevice] | None = None,
        revive: Callable[[], bool] = lambda: True,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """Take ownership of connected phones, all of them free.

        Args:
            phones: for each phone, the connected devices that reach it in order of preference;
                closed together with the manager.
            options: quarantine, lease and reboot settings.
            server: adb server whose phone list is followed; None for phones that never come or go.
            open_newcomer: connects a serial that appears in that list; None admits no newcomers.
            revive: called in a thread before a phone is recovered; restarts virtual phones whose
                process has ended, and returns False once it gives up.
            on_close: called last when the manager is closed.
        """
        self.routes = ConnectionRoutes(phones)
        self._in_use = PhonesInUse(device.serial for device in self.routes.devices())
        self._options = options
        self.ledger = LeaseLedger(
            time.monotonic,
            expiry_s=options.lease_s,
            quarantine_after=options.quarantine_after,
            pause_s=options.quarantine_s,
            # Exceeds the tokens of earlier jobs, whose late commands may still arrive.
            first_token=time.time_ns() // 1_000_000,
        )
        for name in self.routes:
            self.ledger.add(name)
        self._batteries = BatteryWatch()
        self._waiting: dict[int, asyncio.Future[LeaseGrant]] = {}
        self._closing = threading.Event()
        self._ladder = RecoveryLadder(reboot=options.reboot, closing=self._closing)
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ladder")
        self._tasks = BackgroundTasks()
        self._periodic_work: asyncio.Future[None] | None = None
        self._recovering: set[str] = set()
        self._none_since_s: float | None = None
        self._next_notice_s = 0.0
        self._last_failure = ""
        self._revive = revive
        self._are_gone = False
        """Whether the virtual phones' process has ended for good, so no phone will return."""
        self._on_close = on_close
        self._open_newcomer = open_newcomer
        self._tracker = DeviceTracker(server, self._closing) if server is not None else None
        self._away: set[str] = set()
        """Phones that are missing from the server's list."""
        # Newcomers join one at a time, because two of them may be routes to the same phone.
        self._joining = asyncio.Lock()
        self._seen: dict[str, float] = {}
        """Maps each newcomer's serial to the time of the next attempt to admit it."""

    @property
    def grows(self) -> bool:
        """Whether more phones may join."""
        return self._open_newcomer is not None

    def __len__(self) -> int:
        return len(self.ledger)

    async def acquire(self, deadline_s: float) -> LeaseGrant:
        """Lease a phone, which then refuses commands of its earlier holders."""
        end = time.monotonic() + deadline_s
        if self._periodic_work is None:
            self._periodic_work = self._tasks.start(self._run_periodic_work())
        # A granted phone may fail when it is claimed, so try until one works.
        while True:
            grant = await self._next(max(0.0, end - time.monotonic()), deadline_s)
            holding = self._tasks.start(asyncio.to_thread(self._claim, grant))
            try:
                await asyncio.shield(holding)
                if self.ledger.renew(grant.token):
                    return grant
            except BatteryError as error:
                self._set_aside(grant, error)
            except DeviceError as error:
                await self.release(grant.token, LeaseEnd.after(error))
            except asyncio.CancelledError:
                # Release only after the token is written, or it could overwrite the next holder's.
                self._tasks.start(self._release_after(holding, grant))
                raise

    def renew(self, tokens: Collection[int]) -> list[int]:
        """Extend leases and return the tokens that are still valid."""
        return [token for token in tokens if self.ledger.renew(token)]

    async def release(self, token: int, ending: LeaseEnd) -> None:
        """End a lease; does nothing if it has already ended or expired."""
        phone = self.ledger.phone_of(token)
        failed = ending.error is not None
        ended = self.ledger.end(token, good=ending.good, failed=failed, busy_s=ending.busy_s)
        if phone is not None and ended and failed and not self._closing.is_set():
            self._last_failure = f"{phone}: {ending.error}"
            self._recovering.add(phone)
            self._tasks.start(self._recover(phone, ending))
        self._grant_free_phones()

    def close(self) -> None:
        """Close the phones; ends virtual phones started for the pool."""
        self._closing.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._periodic_work is not None:
            self._periodic_work.cancel()
        for device in self.routes.devices():
            device.set_lease(None)
            device.close()
        self._in_use.close()
        on_close, self._on_close = self._on_close, lambda: None
        on_close()

    async def _next(self, wait_s: float, deadline_s: float) -> LeaseGrant:
        """Wait for the next free phone, in order of arrival."""
        position = self.ledger.join_queue()
        future: asyncio.Future[LeaseGrant] = asyncio.get_running_loop().create_future()
        self._waiting[position] = future
        try:
            self._grant_free_phones()
            await asyncio.wait({future}, timeout=wait_s)
            if not future.done():
                raise NoDevice(self._shortage(f"no phone became free within {deadline_s:g} s"))
            return future.result()
        except asyncio.CancelledError:
            # A phone was granted at the moment of cancellation, so pass it to the next caller.
            if future.done() and future.exception() is None:
                self._tasks.start(self.release(future.result().token, LeaseEnd()))
            raise
        finally:
            self._waiting.pop(position, None)
            self.ledger.leave_queue(position)

    def _grant_free_phones(self) -> None:
        """Grant free phones to waiting callers, or fail the callers once all phones have failed."""
        for entry in self.ledger.grant_free():
            serial = self.routes.to(entry.phone)[0].serial
            self._waiting[entry.position].set_result(LeaseGrant(serial=serial, token=entry.token))
        now, patience_s = time.monotonic(), self._options.patience_s
        if self._are_gone:
            patience_s = 0.0
        elif self.ledger.count(PhoneAvailability.QUARANTINED) < len(self.ledger):
            self._none_since_s = None
            return
        if self._none_since_s is None:
            self._none_since_s = self._next_notice_s = now
        waited_s = now - self._none_since_s
        if waited_s < patience_s and now >= self._next_notice_s:
            self._next_notice_s = now + _NOTICE_S
            log.warning(
                "all %d phones are in quarantine; the job ends if none returns within %.0f s "
                "(devices.patience_s); last failure: %s",
                len(self.ledger),
                patience_s - waited_s,
                self._last_failure,
            )
        if waited_s >= patience_s:
            for position, future in self._waiting.items():
                self.ledger.leave_queue(position)
                if not future.done():
                    future.set_exception(PoolEmpty(self._shortage("all phones have failed")))

    def _claim(self, grant: LeaseGrant) -> None:
        device = self.routes.device(grant.serial)
        device.claim(grant.token)
        self._batteries.check(device)

    def _set_aside(self, grant: LeaseGrant, error: BatteryError) -> None:
        """Quarantine a phone immediately, since a restart or reboot would not help its battery."""
        phone = self.ledger.phone_of(grant.token)
        if phone is not None and self.ledger.end(grant.token, good=False, failed=True):
            self._last_failure = f"{phone}: {type(error).__name__}: {error}"
            self.ledger.record_recovery(phone, (), answers=False)
            log.warning("%s is now in quarantine; last failure: %s", phone, self._last_failure)
        self._grant_free_phones()

    async def _release_after(self, holding: asyncio.Future[None], grant: LeaseGrant) -> None:
        await asyncio.gather(holding, return_exceptions=True)
        await self.release(grant.token, LeaseEnd())

    async def _recover(self, phone: str, ending: LeaseEnd) -> None:
        routes, failures = self._unlease(phone), self.ledger.failures_in_a_row(phone)
        try:
            await self._check_process()
            recovery = await self._in_thread(
                self._ladder.recover, routes, failures, ending.launched, ending.taken
            )
        finally:
            self._recovering.discard(phone)
        self.routes.prefer(phone, recovery.route)
        self.ledger.record_recovery(phone, recovery.steps, answers=recovery.route is not None)
        if self.ledger.state(phone) is PhoneAvailability.QUARANTINED:
            log.warning("%s is now in quarantine; last failure: %s", phone, ending.error)
        self._grant_free_phones()

    async def _probe(self, phone: str) -> None:
        routes = self._unlease(phone)
        try:
            await self._check_process()
            route = await self._in_thread(self._ladder.probe, routes)
            if route is not None:
                await self._in_thread(self._batteries.check, routes[route])
        except DeviceError:  # the phone answers, but its battery is still empty or hot
            route = None
        finally:
            self._recovering.discard(phone)
        self.routes.prefer(phone, route)
        self.ledger.record_probe(phone, answers=route is not None)
        if route is not None:
            log.warning("%s has returned from quarantine", phone)
        self._grant_free_phones()

    async def _check_process(self) -> None:
        self._are_gone = not await self._in_thread(self._revive)

    def _unlease(self, phone: str) -> list[LeasableDevice]:
        """Return the routes to a phone without a holder, for our own commands."""
        routes = self.routes.to(phone)
        for device in routes:
            device.set_lease(None)
        return routes

    async def _run_periodic_work(self) -> None:
        """Free expired leases, probe quarantined phones and admit newcomers, periodically."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for phone in self.ledger.expire():
                log.warning("%s is free again because its lease expired without renewal", phone)
            for phone in self.ledger.due_for_probe():
                if phone not in self._recovering:
                    self._recovering.add(phone)
                    self._tasks.start(self._probe(phone))
            known = self._tracker.known if self._tracker is not None else None
            if known is not None:
                self._compare({serial for serial, state in known.items() if state == "device"})
            self._grant_free_phones()

    def _compare(self, ready: set[str]) -> None:
        """Update which phones are present, and admit newcomers."""
        # A phone without a listed route is gone, so quarantine it before an episode gets it.
        for phone in self.routes:
            if ready.isdisjoint(route.serial for route in self.routes.to(phone)):
                if phone not in self._away:
                    self._away.add(phone)
                    self.ledger.mark_disconnected(phone)
            elif phone in self._away:
                self._away.discard(phone)
                self.ledger.make_due(phone)
        now = time.monotonic()
        known = {device.serial for device in self.routes.devices()}
        for serial in ready - known if self.grows else ():
            if self._seen.get(serial, 0.0) <= now:
                self._seen[serial] = float("inf")  # while it is being admitted
                self._tasks.start(self._admit(serial))

    async def _admit(self, serial: str) -> None:
        """Admit a newcomer as a new phone, or as another route to a known phone."""
        assert self._open_newcomer is not None
        device: LeasableDevice | None = None
        try:
            device = await self._in_thread(self._open_newcomer, serial)
            async with self._joining:
                await self._join(device)
        except (DeviceError, ConfigError) as error:
            log.warning("%s is connected but cannot be used yet: %s", serial, error)
            self._seen[serial] = time.monotonic() + _ADMIT_AGAIN_S
            if device is not None:
                await self._in_thread(device.close)
            return
        self._seen.pop(serial, None)
        self._grant_free_phones()

    async def _join(self, device: LeasableDevice) -> None:
        same = await self._in_thread(self.routes.phone_of, device)
        # `close` has already closed the known phones and would miss this newcomer.
        if self._closing.is_set():
            device.close()
            return
        self._in_use.add(device.serial)
        if same is None:
            log.warning("%s joined the pool", device.serial)
            self.routes.add(device)
            self.ledger.add(device.serial)
        else:
            log.warning("%s is another route to %s", device.serial, same)
            self.routes.add(device, phone=same)

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)

    def _shortage(self, why: str) -> str:
        """Format the message of NoDevice and PoolEmpty."""
        states = (
            PhoneAvailability.LEASED,
            PhoneAvailability.RECOVERING,
            PhoneAvailability.QUARANTINED,
        )
        leased, recovering, quarantined = map(self.ledger.count, states)
        last = f" Last failure: {self._last_failure}" if self._last_failure else ""
        return (
            f"cannot lease a phone because {why}. Of {len(self)} phones, {leased} are leased, "
            f"{recovering} recovering and {quarantined} in quarantine. Check them (agentrl devices "
            f"doctor), add phones (devices.source) or lower rollout.concurrency.{last}"
        )


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
