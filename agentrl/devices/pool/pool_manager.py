"""Keeps the phones of a pool: lends them, mends those that fail, and finds those that come back."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from agentrl.devices.adb import AdbServer
from agentrl.devices.pool.background_tasks import Tasks
from agentrl.devices.pool.connection_routes import Ways
from agentrl.devices.pool.device_arrivals import Arrivals
from agentrl.devices.pool.lease import Lendable
from agentrl.devices.pool.lease_ledger import Ledger, State
from agentrl.devices.pool.lender import Ending, Grant, PoolOptions
from agentrl.devices.pool.recovery import Ladder
from agentrl.errors import ConfigError, DeviceError, NoDevice, PoolEmpty

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK_S = 0.1
"""Between looks at what has expired and who may be tried again."""
_ADMIT_AGAIN_S = 10.0
"""Before a newcomer that could not be used is tried again."""
_AT_ONCE = 16
"""Phones that are mended at the same time."""


class Keeper:
    """Lends phones to holders who may be gone tomorrow, on one event loop."""

    def __init__(
        self,
        phones: Iterable[Sequence[Lendable]],
        options: PoolOptions,
        *,
        server: AdbServer | None = None,
        open_newcomer: Callable[[str], Lendable] | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """All phones are free.

        Args:
            phones: connected devices, for each phone those that lead to it, the usual one first;
                they are closed with this.
            options: see there.
            server: whose list tells who comes and goes; None for phones that do neither.
            open_newcomer: connects a serial that appears in that list; None lets none in.
            on_close: called last when this is closed.
        """
        self.ways = Ways(phones)
        self._options = options
        self.ledger = Ledger(
            time.monotonic,
            expiry_s=options.lease_s,
            quarantine_after=options.quarantine_after,
            pause_s=options.quarantine_s,
            # Larger than those of earlier jobs, whose late commands may still be on their way.
            first_token=time.time_ns() // 1_000_000,
        )
        for name in self.ways:
            self.ledger.add(name)
        self._waiting: dict[int, asyncio.Future[Grant]] = {}
        self._closing = threading.Event()
        self._ladder = Ladder(reboot=options.reboot, closing=self._closing)
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ladder")
        self._tasks = Tasks()
        self._tending: asyncio.Future[None] | None = None
        self._mending: set[str] = set()
        self._none_since_s: float | None = None
        self._last_failure = ""
        self._on_close = on_close
        self._open_newcomer = open_newcomer
        self._arrivals = Arrivals(server, self._closing) if server is not None else None
        self._away: set[str] = set()
        """Phones that are not in the server's list."""
        # One joins after the other: two that come together may lead to the same phone.
        self._joining = asyncio.Lock()
        self._seen: dict[str, float] = {}
        """Newcomers by serial, and when to try them again."""

    @property
    def grows(self) -> bool:
        """Whether more phones may come."""
        return self._open_newcomer is not None

    def __len__(self) -> int:
        return len(self.ledger)

    async def take(self, deadline_s: float) -> Grant:
        """Borrow a phone, which refuses its earlier holders from then on.

        Args:
            deadline_s: how long to wait for one.

        Raises:
            NoDevice: none became free in time; a later call may find one.
            PoolEmpty: all are in quarantine, and there is no more patience.
        """
        end = time.monotonic() + deadline_s
        if self._tending is None:
            self._tending = self._tasks.start(self._tend())
        while True:
            grant = await self._next(max(0.0, end - time.monotonic()), deadline_s)
            holding = self._tasks.start(asyncio.to_thread(self._hold, grant))
            try:
                await asyncio.shield(holding)
                if self.ledger.renew(grant.token):
                    return grant
            except DeviceError as error:
                await self.give_back(grant.token, Ending(error=str(error)))
            except asyncio.CancelledError:
                # Not before the token is written: it must not come after that of the next holder.
                self._tasks.start(self._give_back_after(holding, grant))
                raise

    def renew(self, tokens: Collection[int]) -> list[int]:
        """Let leases last longer; those that have not ended."""
        return [token for token in tokens if self.ledger.renew(token)]

    async def give_back(self, token: int, ending: Ending) -> None:
        """End a lease; nothing happens where it had ended or expired."""
        phone = self.ledger.phone_of(token)
        failed = ending.error is not None
        ended = self.ledger.end(token, good=ending.good, failed=failed, busy_s=ending.busy_s)
        if phone is not None and ended and failed and not self._closing.is_set():
            self._last_failure = f"{phone}: {ending.error}"
            self._mending.add(phone)
            self._tasks.start(self._mend(phone, ending))
        self._hand_out()

    def close(self) -> None:
        """Close the phones; virtual ones that were started for it end."""
        self._closing.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._tending is not None:
            self._tending.cancel()
        for device in self.ways.devices():
            device.send_under(None)
            device.close()
        on_close, self._on_close = self._on_close, lambda: None
        on_close()

    async def _next(self, wait_s: float, deadline_s: float) -> Grant:
        """The next phone that is free, in turn."""
        place = self.ledger.line_up()
        future: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        self._waiting[place] = future
        try:
            self._hand_out()
            await asyncio.wait({future}, timeout=wait_s)
            if not future.done():
                raise NoDevice(self._shortage(f"none became free in {deadline_s:g} s"))
            return future.result()
        except asyncio.CancelledError:
            # Handed over in the very moment that its taker gave up: the next one gets it.
            if future.done() and future.exception() is None:
                self._tasks.start(self.give_back(future.result().token, Ending()))
            raise
        finally:
            self._waiting.pop(place, None)
            self.ledger.leave(place)

    def _hand_out(self) -> None:
        """Hand out what is free, and tell those who wait if nothing ever will be."""
        for entry in self.ledger.lend():
            serial = self.ways.to(entry.phone)[0].serial
            self._waiting[entry.place].set_result(Grant(serial=serial, token=entry.token))
        now = time.monotonic()
        if self.ledger.count(State.ASIDE) < len(self.ledger):
            self._none_since_s = None
            return
        self._none_since_s = now if self._none_since_s is None else self._none_since_s
        if now - self._none_since_s >= self._options.patience_s:
            for place, future in self._waiting.items():
                self.ledger.leave(place)
                if not future.done():
                    future.set_exception(PoolEmpty(self._shortage("all phones have failed")))

    def _hold(self, grant: Grant) -> None:
        self.ways.device(grant.serial).hold(grant.token)

    async def _give_back_after(self, holding: asyncio.Future[None], grant: Grant) -> None:
        await asyncio.gather(holding, return_exceptions=True)
        await self.give_back(grant.token, Ending())

    async def _mend(self, phone: str, ending: Ending) -> None:
        ways, failures = self._take_over(phone), self.ledger.failures_in_a_row(phone)
        try:
            climb = await self._in_thread(
                self._ladder.climb, ways, failures, ending.launched, ending.taken
            )
        finally:
            self._mending.discard(phone)
        self.ways.prefer(phone, climb.way)
        self.ledger.mended(phone, climb.rungs, answers=climb.way is not None)
        if self.ledger.state(phone) is State.ASIDE:
            log.warning("%s is in quarantine; it failed as %s", phone, self._last_failure)
        self._hand_out()

    async def _knock(self, phone: str) -> None:
        ways = self._take_over(phone)
        try:
            way = await self._in_thread(self._ladder.knock, ways)
        finally:
            self._mending.discard(phone)
        self.ways.prefer(phone, way)
        self.ledger.tried(phone, answers=way is not None)
        if way is not None:
            log.warning("%s has returned from quarantine", phone)
        self._hand_out()

    def _take_over(self, phone: str) -> list[Lendable]:
        """The ways to a phone that nobody holds, for us to use."""
        ways = self.ways.to(phone)
        for device in ways:
            device.send_under(None)
        return ways

    async def _tend(self) -> None:
        """What happens by the clock alone."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for phone in self.ledger.expire():
                log.warning("%s: its holder has fallen silent; it is lent again", phone)
            for phone in self.ledger.due():
                if phone not in self._mending:
                    self._mending.add(phone)
                    self._tasks.start(self._knock(phone))
            known = self._arrivals.known if self._arrivals is not None else None
            if known is not None:
                self._compare({serial for serial, state in known.items() if state == "device"})
            self._hand_out()

    def _compare(self, ready: set[str]) -> None:
        """Take note of who is there, and who is not."""
        for phone in self.ways:
            if ready.isdisjoint(way.serial for way in self.ways.to(phone)):
                if phone not in self._away:
                    self._away.add(phone)
                    self.ledger.away(phone)
            elif phone in self._away:
                self._away.discard(phone)
                self.ledger.hurry(phone)
        now = time.monotonic()
        known = {device.serial for device in self.ways.devices()}
        for serial in ready - known if self.grows else ():
            if self._seen.get(serial, 0.0) <= now:
                self._seen[serial] = float("inf")
                self._tasks.start(self._admit(serial))

    async def _admit(self, serial: str) -> None:
        """Take a newcomer in, as a phone or as another way to one."""
        assert self._open_newcomer is not None
        device: Lendable | None = None
        try:
            device = await self._in_thread(self._open_newcomer, serial)
            async with self._joining:
                await self._join(device)
        except (DeviceError, ConfigError) as error:
            log.warning("%s has come and cannot be used yet: %s", serial, error)
            self._seen[serial] = time.monotonic() + _ADMIT_AGAIN_S
            if device is not None:
                await self._in_thread(device.close)
            return
        self._seen.pop(serial, None)
        self._hand_out()

    async def _join(self, device: Lendable) -> None:
        same = await self._in_thread(self.ways.phone_of, device)
        if self._closing.is_set():
            device.close()
        elif same is None:
            log.warning("%s has come and joins the pool", device.serial)
            self.ways.add(device)
            self.ledger.add(device.serial)
        else:
            log.warning("%s is another way to %s", device.serial, same)
            self.ways.add(device, phone=same)

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)

    def _shortage(self, why: str) -> str:
        """What to say where there is no phone to lend."""
        leased, mended, aside = map(self.ledger.count, (State.LENT, State.MENDED, State.ASIDE))
        last = f" The last failure: {self._last_failure}" if self._last_failure else ""
        return (
            f"no phone to lease: {why}; of {len(self)}, {leased} are leased, {mended} being "
            f"mended and {aside} in quarantine. Look at them (agentrl devices doctor), add phones "
            f"(devices.source) or lower rollout.concurrency.{last}"
        )
