"""Keeps the phones of a pool: lends them, mends those that fail, and finds those that come back."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from agentrl.devices.adb import AdbServer
from agentrl.devices.arrivals import Arrivals
from agentrl.devices.ladder import Ladder
from agentrl.devices.lease import Lendable
from agentrl.devices.ledger import Ledger, State
from agentrl.devices.lending import Ending, Grant, PoolOptions
from agentrl.devices.ways import is_same
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
        self._ways = {devices[0].serial: list(devices) for devices in phones}
        self._options = options
        self.ledger = Ledger(
            time.monotonic,
            expiry_s=options.lease_s,
            quarantine_after=options.quarantine_after,
            pause_s=options.quarantine_s,
            # Larger than those of earlier jobs, whose late commands may still be on their way.
            first_token=time.time_ns() // 1_000_000,
        )
        for name in self._ways:
            self.ledger.add(name)
        self._waiting: dict[int, asyncio.Future[Grant]] = {}
        self._closing = threading.Event()
        self._ladder = Ladder(reboot=options.reboot, closing=self._closing)
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ladder")
        self._tasks: set[asyncio.Future[Any]] = set()
        self._tending: asyncio.Future[None] | None = None
        self._mending: set[str] = set()
        self._none_since_s: float | None = None
        self._last_failure = ""
        self._on_close = on_close
        self._open_newcomer = open_newcomer
        self._arrivals = Arrivals(server, self._closing) if server is not None else None
        self._away: set[str] = set()
        """Phones that are not in the server's list."""
        self._seen: dict[str, float] = {}
        """Newcomers by serial, and when to try them again."""

    @property
    def grows(self) -> bool:
        """Whether more phones may come."""
        return self._open_newcomer is not None

    def __len__(self) -> int:
        return len(self.ledger)

    def device(self, serial: str) -> Lendable:
        """The device of that serial."""
        return next(d for ways in self._ways.values() for d in ways if d.serial == serial)

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
            self._tending = self._task(self._tend())
        while True:
            grant = await self._next(max(0.0, end - time.monotonic()), deadline_s)
            holding = self._task(asyncio.to_thread(self._hold, grant))
            try:
                await asyncio.shield(holding)
                if self.ledger.renew(grant.token):
                    return grant
            except DeviceError as error:
                await self.give_back(grant.token, Ending(error=str(error)))
            except asyncio.CancelledError:
                # Not before the token is written: it must not come after that of the next holder.
                self._task(self._give_back_after(holding, grant))
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
            self._task(self._mend(phone, ending))
        self._settle()

    def close(self) -> None:
        """Close the phones; virtual ones that were started for it end."""
        self._closing.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._tending is not None:
            self._tending.cancel()
        for ways in self._ways.values():
            for device in ways:
                device.send_under(None)
                device.close()
        on_close, self._on_close = self._on_close, lambda: None
        on_close()

    async def _next(self, wait_s: float, deadline_s: float) -> Grant:
        """The next phone that is free, in turn."""
        place = self.ledger.wait()
        future: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        self._waiting[place] = future
        try:
            self._settle()
            await asyncio.wait({future}, timeout=wait_s)
            if not future.done():
                raise NoDevice(self._nobody(f"none became free in {deadline_s:g} s"))
            return future.result()
        except asyncio.CancelledError:
            # Handed over in the very moment that its taker gave up: the next one gets it.
            if future.done() and future.exception() is None:
                self._task(self.give_back(future.result().token, Ending()))
            raise
        finally:
            self._waiting.pop(place, None)
            self.ledger.leave(place)

    def _settle(self) -> None:
        """Hand out what is free, and tell those who wait if nothing ever will be."""
        for entry in self.ledger.lend():
            serial = self._ways[entry.phone][0].serial
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
                    future.set_exception(PoolEmpty(self._nobody("all phones have failed")))

    def _hold(self, grant: Grant) -> None:
        self.device(grant.serial).hold(grant.token)

    async def _give_back_after(self, holding: asyncio.Future[None], grant: Grant) -> None:
        await asyncio.gather(holding, return_exceptions=True)
        await self.give_back(grant.token, Ending())

    async def _mend(self, phone: str, ending: Ending) -> None:
        ways, failures = self._own(phone), self.ledger.failures_in_a_row(phone)
        try:
            climb = await self._in_thread(self._ladder.climb, ways, failures, ending.launched)
        finally:
            self._mending.discard(phone)
        self._prefer(phone, climb.way)
        self.ledger.mended(phone, climb.rungs, answers=climb.way is not None)
        if self.ledger.state(phone) is State.ASIDE:
            log.warning("%s is in quarantine; it failed as %s", phone, self._last_failure)
        self._settle()

    async def _knock(self, phone: str) -> None:
        ways = self._own(phone)
        try:
            way = await self._in_thread(self._ladder.knock, ways)
        finally:
            self._mending.discard(phone)
        self._prefer(phone, way)
        self.ledger.tried(phone, answers=way is not None)
        if way is not None:
            log.warning("%s has returned from quarantine", phone)
        self._settle()

    def _own(self, phone: str) -> list[Lendable]:
        """The ways to a phone that nobody holds, for us to use."""
        self._mending.add(phone)
        for device in self._ways[phone]:
            device.send_under(None)
        return list(self._ways[phone])

    def _prefer(self, phone: str, way: int | None) -> None:
        ways = self._ways[phone]
        if way:
            ways.insert(0, ways.pop(way))
            log.warning("%s is reached as %s from now on", phone, ways[0].serial)

    async def _tend(self) -> None:
        """What happens by the clock alone."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for phone in self.ledger.expire():
                log.warning("%s: its holder has fallen silent; it is lent again", phone)
            for phone in self.ledger.due():
                if phone not in self._mending:
                    self._mending.add(phone)
                    self._task(self._knock(phone))
            known = self._arrivals.known if self._arrivals is not None else None
            if known is not None:
                self._compare({serial for serial, state in known.items() if state == "device"})
            self._settle()

    def _compare(self, ready: set[str]) -> None:
        """Take note of who is there, and who is not."""
        for phone, ways in self._ways.items():
            if ready.isdisjoint(way.serial for way in ways):
                if phone not in self._away:
                    self._away.add(phone)
                    self.ledger.away(phone)
            elif phone in self._away:
                self._away.discard(phone)
                self.ledger.hurry(phone)
        now = time.monotonic()
        ours = {way.serial for ways in self._ways.values() for way in ways}
        for serial in ready - ours if self.grows else ():
            if self._seen.get(serial, 0.0) <= now:
                self._seen[serial] = float("inf")
                self._task(self._admit(serial))

    async def _admit(self, serial: str) -> None:
        """Take a newcomer in, as a phone or as another way to one."""
        assert self._open_newcomer is not None
        known = {phone: list(ways) for phone, ways in self._ways.items()}
        try:
            device = await self._in_thread(self._open_newcomer, serial)
            same = await self._in_thread(_first_same, known, device)
        except (DeviceError, ConfigError) as error:
            log.warning("%s has come and cannot be used yet: %s", serial, error)
            self._seen[serial] = time.monotonic() + _ADMIT_AGAIN_S
            return
        if self._closing.is_set():
            device.close()
        elif same is None:
            log.warning("%s has come and joins the pool", serial)
            self._ways[serial] = [device]
            self.ledger.add(serial)
        else:
            log.warning("%s is another way to %s", serial, same)
            self._ways[same].append(device)
        self._seen.pop(serial, None)
        self._settle()

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)

    def _task(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_told)
        return task

    def _nobody(self, why: str) -> str:
        leased, mended, aside = map(self.ledger.count, (State.LENT, State.MENDED, State.ASIDE))
        last = f" The last failure: {self._last_failure}" if self._last_failure else ""
        return (
            f"no phone to lease: {why}; of {len(self)}, {leased} are leased, {mended} being "
            f"mended and {aside} in quarantine. Look at them (agentrl devices doctor), add phones "
            f"(devices.source) or lower rollout.concurrency.{last}"
        )


def _first_same(phones: Mapping[str, Sequence[Lendable]], device: Lendable) -> str | None:
    """The phone to which the device is another way."""
    return next((phone for phone, ways in phones.items() if is_same(ways, device)), None)


def _told(task: asyncio.Future[Any]) -> None:
    """Nobody waits for these tasks: what is wrong with us must not go unseen."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, DeviceError):
        log.error("a pool's own task failed", exc_info=error)
