"""Open the phones that a configuration names, as a pool for one or several processes.

If several processes share the phones, a Ray actor owns them and the others borrow them.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from agentrl import devices, env_registry
from agentrl.cluster.ray_actor_calls import await_result, short_reason
from agentrl.cluster.ray_actor_logs import redirect_output, serials_in
from agentrl.config import DevicesConfig
from agentrl.devices import DeviceWrapper
from agentrl.devices.device_opener import DeviceOpener
from agentrl.devices.pool import Borrower, DevicePool
from agentrl.devices.pool.lease import LeasableDevice, LeasedDevice, LeaseEnd, LeaseGrant
from agentrl.errors import LeaseLost, PhonePoolLost, WorkerLost
from agentrl.replay.live_phone_states import LivePhone, LivePhones
from agentrl.rollout.nodes.job_files import JobOnNode
from agentrl.rollout.nodes.run_folder_on_nodes import RecordedRun

log = logging.getLogger(__name__)
POOL = "the shared phone pool"
"""Name of the pool's actor, for messages."""
_ANSWER_S = 30.0
"""Seconds for the pool's actor to answer, in addition to the caller's wait for a phone."""
_HEARTBEATS_PER_LEASE = 3
"""Number of heartbeats within `devices.lease_s`."""


def open_phone_pool(
    settings: DevicesConfig,
    env_id: str,
    run_seed: int,
    wrap: devices.DeviceWrapper = lambda phone: phone,
    lease_s: float = float("inf"),
) -> devices.DevicePool:
    """Open the phones for use in this process.

    Raises:
        ConfigError: a phone cannot be reached.
    """
    assert not settings.hosts, "each host opens its own"
    app, delay = env_registry.find_env(env_id).app, settings.effect_delay_ms
    return devices.open_source(
        settings.source,
        apps=[] if app is None else [app],
        size=(settings.size[0], settings.size[1]),
        tempo=settings.tempo,
        effect_delay_ms=None if delay is None else (delay[0], delay[1]),
        seed=run_seed,
        options=devices.PoolOptions(
            quarantine_after=settings.quarantine_after,
            quarantine_s=settings.quarantine_s,
            patience_s=settings.patience_s,
            lease_s=lease_s,
            reboot=settings.reboot,
        ),
        wrap=wrap,
        **open_settings(settings),
    )


def phone_states(pool: devices.DevicePool) -> list[LivePhone]:
    """Return the states of a pool's phones, for the live view."""
    return [
        LivePhone(
            serial=phone.serial,
            state=phone.state,
            leases=phone.leases,
            failures=phone.failures,
            busy_share=phone.busy_share,
        )
        for phone in pool.stats()
    ]


def open_settings(settings: DevicesConfig) -> devices.OpenSettings:
    """Return the settings for opening each phone of a job."""
    return {
        "driver": settings.driver,
        "capture": settings.capture,
        "input": settings.input,
        "deadlines": devices.Deadlines(**asdict(settings.deadlines)),
        "public": settings.public_addresses,
        "wake": settings.wake,
        "adb_port": settings.adb_port,
    }


class PhonePoolActor:
    """The pool of one host's phones, in its own process.

    A borrower that stops renewing loses its phone. Only processes on the same node can borrow,
    because they connect to its adb server.
    """

    def __init__(
        self,
        job: JobOnNode,
        run: RecordedRun | None,
        number: int = 0,
        host: str | None = None,
    ) -> None:
        self._name, self._host = f"phones{number or ''}", host
        self._run = None if run is None else run.open()
        if self._run is not None:
            serials = serials_in(job.tree)
            redirect_output(self._run.folder, self._name, serials)
        self._config = job.open()
        self._pool: DevicePool | None = None
        self._live: LivePhones | None = None

    async def start(self) -> tuple[int, bool]:
        """Open the phones.

        Returns:
            The number of phones, and whether phones may be added.

        Raises:
            ConfigError: a phone cannot be reached.
        """
        config = self._config
        pool = await asyncio.to_thread(
            open_phone_pool,
            config.devices,
            config.env.id,
            config.seed,
            lease_s=config.devices.lease_s,
        )
        self._pool = pool
        if self._run is not None:
            states = partial(phone_states, pool)
            self._live = LivePhones(self._run.folder, self._name, states, self._host)
        return len(pool), pool.grows

    async def acquire(self, deadline_s: float) -> LeaseGrant:
        """See PoolManager.acquire."""
        return await self._started_pool.manager.acquire(deadline_s)

    async def release(self, token: int, ending: LeaseEnd) -> None:
        """See PoolManager.release."""
        await self._started_pool.manager.release(token, ending)

    async def renew(self, tokens: Sequence[int]) -> list[int]:
        """See PoolManager.renew."""
        return self._started_pool.manager.renew(tokens)

    async def close(self) -> None:
        """Close the pool, and shut down phones that were started."""
        if self._live is not None:
            await asyncio.to_thread(self._live.close)
        if self._pool is not None:
            await asyncio.to_thread(self._pool.close)
        if self._run is not None:
            await asyncio.to_thread(self._run.close)

    @property
    def _started_pool(self) -> DevicePool:
        assert self._pool is not None, "it was started"
        return self._pool


@dataclass(slots=True, kw_only=True, frozen=True)
class SharedPhones:
    """A handle with which other processes borrow a pool's phones."""

    actor: Any
    """Ray handle of the `PhonePoolActor`."""
    count: int
    grows: bool
    settings: DevicesConfig
    """How to connect to the phones."""
    host: str | None = None
    """The phones' host, if the job has phones on several hosts."""


class SharedPool(Borrower):
    """A pool owned by another process; this process connects to its phones directly."""

    def __init__(
        self,
        phones: SharedPhones,
        wrap: DeviceWrapper = lambda phone: phone,
    ) -> None:
        super().__init__(_RemoteLender(phones.actor))
        self._phones, settings = phones, phones.settings
        self._opener = DeviceOpener(wrap=wrap, **open_settings(settings))
        self._is_virtual = str(settings.source).startswith("virtual")
        self._lease_s = settings.lease_s
        self._devices: dict[str, LeasableDevice] = {}
        self._closing = threading.Event()
        # Renew in a thread, so that leases do not expire while the event loop is busy.
        threading.Thread(target=self._send_heartbeats, name="heartbeat", daemon=True).start()

    def __len__(self) -> int:
        return self._phones.count

    @property
    def grows(self) -> bool:
        """Whether phones may be added."""
        return self._phones.grows

    def close(self) -> None:
        """End all leases and close this process's connections."""
        self._closing.set()
        for lease in list(self._leases.values()):
            lease.end()
        for device in self._devices.values():
            device.close()

    async def _opened(self, grant: LeaseGrant) -> LeasedDevice:
        import ray.exceptions

        device = self._devices.get(grant.serial)
        if device is None:
            device = await asyncio.to_thread(
                self._opener.open, grant.serial, known=self._is_virtual
            )
            self._devices[grant.serial] = device
        device.set_lease(grant.token)
        lease = LeasedDevice(device, grant.name, until_s=0.0)
        try:
            renewed = await asyncio.to_thread(self._renew, {grant.token: lease})
        except ray.exceptions.RayError as error:
            raise PhonePoolLost(f"{POOL} died: {short_reason(error)}") from error
        if not renewed:
            raise LeaseLost(f"{grant.serial}: the lease expired before it began")
        return lease

    def _renew(self, leases: dict[int, LeasedDevice]) -> list[int]:
        """Renew leases, and return the tokens of the leases that continue."""
        import ray

        # Taken before the call: the owner starts its lease period later, so this is safe.
        sent_s = time.monotonic()
        call = self._phones.actor.renew.remote(list(leases))
        renewed: list[int] = ray.get(call, timeout=self._lease_s)
        for token in renewed:
            leases[token].until_s = sent_s + self._lease_s
        return renewed

    def _send_heartbeats(self) -> None:
        import ray.exceptions

        while not self._closing.wait(self._lease_s / _HEARTBEATS_PER_LEASE):
            leases = dict(self._leases)
            try:
                if leases:
                    self._renew(leases)
            # A later heartbeat may arrive before the leases expire.
            except ray.exceptions.RayError as error:
                log.warning("heartbeat to the shared phone pool failed: %s", short_reason(error))


class _RemoteLender:
    """See Lender."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def acquire(self, deadline_s: float) -> LeaseGrant:
        call = self._actor.acquire.remote(deadline_s)
        pending = asyncio.ensure_future(self._result(call, deadline_s + _ANSWER_S))
        try:
            grant: LeaseGrant = await asyncio.shield(pending)
        except asyncio.CancelledError:
            pending.add_done_callback(self._return_unclaimed)
            raise
        return grant

    async def release(self, token: int, ending: LeaseEnd) -> None:
        await self._result(self._actor.release.remote(token, ending), _ANSWER_S)

    async def _result(self, call: Any, deadline_s: float) -> Any:
        try:
            return await await_result(call, POOL, deadline_s)
        # A WorkerLost would mean that this process, which only borrows phones, has died.
        except WorkerLost as error:
            raise PhonePoolLost(str(error)) from error

    def _return_unclaimed(self, pending: "asyncio.Future[LeaseGrant]") -> None:
        """Release a phone granted after its borrower was canceled."""
        if not pending.cancelled() and pending.exception() is None:
            self._actor.release.remote(pending.result().token, LeaseEnd())
