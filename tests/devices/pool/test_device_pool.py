import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from agentrl.child_process import free_port
from agentrl.devices import (
    Action,
    Deadlines,
    DevicePool,
    PoolOptions,
    Tap,
    open_device,
    open_source,
)
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.pool.lease import LeasableDevice
from agentrl.devices.pool.pool_manager import PoolManager
from agentrl.errors import (
    AppLeft,
    DeviceError,
    DeviceOffline,
    DeviceTimeout,
    LeaseLost,
    NoDevice,
    PoolEmpty,
)
from virtual_phone import spawn


class StillDevice:
    """A phone that does nothing, for the pool's own rules."""

    def __init__(self, serial: str) -> None:
        self.serial = serial
        self.deadlines = Deadlines()
        self.taps = 0
        self.closed = False
        self.reconnections = 0
        self.under: list[int | None] = []
        self.unreachable = 0
        """Reconnections that it takes."""

    def perform(self, action: Action, duration_s: float | None = None) -> None:
        self.taps += 1

    def shell(self, *arguments: str) -> str:
        if self.reconnections < self.unreachable:
            raise DeviceOffline("not there")
        if arguments[0] == "sleep":
            time.sleep(float(arguments[1]))
        return "1"

    def claim(self, token: int) -> None:
        self.shell("true")

    def set_lease(self, token: int | None) -> None:
        self.under.append(token)

    def screenshot(self) -> None:
        self.shell("true")

    def reconnect(self) -> None:
        self.reconnections += 1
        if self.reconnections < self.unreachable:
            raise DeviceOffline("not yet")

    def close(self) -> None:
        self.closed = True


def pool_of(count: int, **options: float) -> DevicePool:
    return pool_with(*(StillDevice(f"phone-{n}") for n in range(count)), **options)


def pool_with(*devices: LeasableDevice, **options: float) -> DevicePool:
    return DevicePool(PoolManager([[device] for device in devices], PoolOptions(**options)))


async def test_a_phone_is_leased_once_at_a_time_and_the_next_caller_gets_it() -> None:
    pool = pool_of(2)
    lent: set[str] = set()

    async def borrow() -> None:
        async with pool.lease(5) as phone:
            assert phone.serial not in lent
            lent.add(phone.serial)
            await asyncio.sleep(0)
            lent.discard(phone.serial)

    await asyncio.gather(*(borrow() for _ in range(50)))
    assert sum(row.leases for row in pool.stats()) == 50
    assert min(row.leases for row in pool.stats()) > 10


async def test_no_free_phone_is_an_error_with_the_counts() -> None:
    pool = pool_of(1)
    async with pool.lease(1):
        with pytest.raises(NoDevice, match="Of 1 phones, 1 are leased, 0 recovering") as none:
            async with pool.lease(0.01):
                pass
        assert not isinstance(none.value, PoolEmpty), "a later lease finds one"
    async with pool.lease(1):
        pass


async def test_a_late_command_of_the_previous_holder_is_refused() -> None:
    pool = pool_of(1)
    async with pool.lease(1) as old:
        old.perform(Tap(0.5, 0.5))
    async with pool.lease(1) as new:
        with pytest.raises(DeviceError, match="has ended"):
            old.perform(Tap(0.5, 0.5))
        new.perform(Tap(0.5, 0.5))
        assert new.token != old.token
        assert open_device(new.token) is new
    with pytest.raises(DeviceError, match="not known in this process"):
        open_device(new.token)


async def test_a_phone_that_fails_repeatedly_is_quarantined() -> None:
    pool = pool_of(2, quarantine_after=2)

    async def fail(serial: str) -> None:
        async with pool.lease(1) as phone:
            if phone.serial == serial:
                raise DeviceOffline("gone")

    for _ in range(4):
        with contextlib.suppress(DeviceOffline):
            await fail("phone-0")
    rows = {row.serial: row for row in pool.stats()}
    assert rows["phone-0"].quarantined
    assert rows["phone-0"].failures == 2
    assert not rows["phone-1"].quarantined
    async with pool.lease(1) as phone:
        assert phone.serial == "phone-1"


async def test_a_good_lease_resets_failures_and_other_errors_do_not_count() -> None:
    pool = pool_of(1, quarantine_after=2)
    for error in (DeviceOffline, None, DeviceOffline, ValueError, None):
        try:
            async with pool.lease(1):
                if error is not None:
                    raise error
        except (DeviceOffline, ValueError):
            pass
    assert not pool.stats()[0].quarantined


async def fail(pool: DevicePool) -> None:
    with contextlib.suppress(DeviceOffline):
        async with pool.lease(5):
            raise DeviceOffline("gone")


async def test_a_timed_out_lease_neither_counts_nor_resets_failures() -> None:
    pool = pool_of(1, quarantine_after=2)
    await fail(pool)
    async with pool.lease(5) as phone:
        phone.doubt()
    async with pool.lease(5) as phone:  # given up in the middle of a call
        hung = asyncio.create_task(asyncio.to_thread(phone.shell, "sleep", "0.3"))
        while not phone.calling:
            await asyncio.sleep(0.005)
    await hung
    assert not pool.stats()[0].quarantined
    await fail(pool)
    assert pool.stats()[0].quarantined


async def test_a_reported_failure_counts_as_one_that_was_raised() -> None:
    pool = pool_of(1, quarantine_after=2)
    errors = (DeviceOffline("gone"), AppLeft("call", "it rang"), DeviceTimeout("no answer"))
    for error in errors:
        assert not pool.stats()[0].quarantined
        async with pool.lease(5) as phone:
            phone.fail(error)
    assert (pool.stats()[0].failures, pool.stats()[0].quarantined) == (2, True)
    with pytest.raises(PoolEmpty, match="Last failure: phone-0: DeviceTimeout: no answer"):
        async with pool.lease(0.1):
            pass


async def test_a_phone_that_refuses_the_lease_is_reported_with_the_type_of_its_error() -> None:
    device = StillDevice("phone")
    device.unreachable = 10**6
    device.deadlines = Deadlines(connect_s=0.01)
    with (
        pool_with(device, quarantine_after=1) as pool,
        pytest.raises(PoolEmpty, match="Last failure: phone: DeviceOffline: not there"),
    ):
        async with pool.lease(5):
            pass


async def test_a_quarantine_is_reported_with_the_phones_own_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    both_are_leased = asyncio.Barrier(2)
    with pool_of(2, quarantine_after=1) as pool:

        async def end_with(error: DeviceError) -> None:
            async with pool.lease(5) as phone:
                await both_are_leased.wait()
                phone.fail(error)

        # Both fail before either has been recovered.
        await asyncio.gather(end_with(DeviceOffline("gone")), end_with(DeviceTimeout("silent")))
        async with asyncio.timeout(20):
            while caplog.text.count("now in quarantine") < 2:
                await asyncio.sleep(0.01)
    for failure in ("DeviceOffline: gone", "DeviceTimeout: silent"):
        assert caplog.text.count(f"is now in quarantine; last failure: {failure}") == 1


async def test_a_failed_phone_is_reconnected_before_it_is_leased() -> None:
    device = StillDevice("phone")
    pool = pool_with(device)
    with contextlib.suppress(DeviceOffline):
        async with pool.lease(5):
            device.unreachable = 3
            raise DeviceOffline("gone")
    with pytest.raises(NoDevice, match="1 recovering"):
        async with pool.lease(0.01):
            pass
    async with pool.lease(5):
        assert device.reconnections == 3
    async with pool.lease(5):
        assert device.reconnections == 3, "a good lease needs none"
    assert pool.stats()[0].recoveries == {"retry": 1, "reconnect": 1}


async def test_a_disconnected_phone_is_quarantined_at_once_and_returns() -> None:
    away, there = StillDevice("away"), StillDevice("there")
    away.unreachable = 10**6
    away.deadlines = Deadlines(connect_s=0.05)
    with pool_with(away, there, quarantine_s=0.05) as pool:
        for _ in range(3):
            async with pool.lease(5) as phone:
                assert phone.serial == "there", "a phone that refuses the token is not leased"
        async with asyncio.timeout(20):
            while not pool.stats()[0].quarantined:
                await asyncio.sleep(0.01)
        away.unreachable = 0
        async with pool.lease(20) as first, pool.lease(20) as second:
            assert {first.serial, second.serial} == {"away", "there"}
        assert not pool.stats()[0].quarantined


async def test_a_job_waits_for_its_last_phone_up_to_its_patience_and_says_so_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    device = StillDevice("phone")
    with pool_with(device, quarantine_after=1, patience_s=0.3) as pool:
        await fail(pool)
        start = time.monotonic()
        with pytest.raises(PoolEmpty, match="Last failure: phone: DeviceOffline: gone"):
            async with pool.lease(30):
                pass
        assert 0.2 < time.monotonic() - start < 20
    notice = r"all 1 phones are in quarantine; the job ends if none returns within 0 s \(devices"
    assert len(re.findall(notice, caplog.text)) == 1


async def test_leaving_the_app_is_not_a_failure_of_the_phone() -> None:
    pool = pool_of(1, quarantine_after=2)
    await fail(pool)
    for _ in range(3):
        with contextlib.suppress(AppLeft):
            async with pool.lease(5):
                raise AppLeft("call", "it rang")
    assert (pool.stats()[0].failures, pool.stats()[0].quarantined) == (1, False)
    await fail(pool)
    assert pool.stats()[0].quarantined, "nor does it make up for one"


async def test_a_phone_taken_by_another_job_is_left_alone() -> None:
    pool = pool_of(1, quarantine_after=4, reboot=True)
    for _ in range(3):
        with contextlib.suppress(LeaseLost):
            async with pool.lease(5):
                raise LeaseLost("it is lent to somebody else")
    async with pool.lease(5):
        stats = pool.stats()[0]
    assert (stats.failures, stats.recoveries) == (3, {"retry": 3, "reconnect": 2})


def kill(server: AdbServer) -> None:
    """End an adb server of the test's own and wait until it is gone."""
    deadline = Deadline(10)
    with contextlib.suppress(DeviceError):
        server.query("host:kill", deadline)
    running = True
    while running:
        with contextlib.suppress(DeviceError):  # it may be asked in the moment that it ends
            running = server.is_running(deadline.left_s())


@pytest.mark.adb
async def test_an_adb_server_killed_by_another_tool_costs_no_episode() -> None:
    port = free_port()
    server = AdbServer(port=port)
    with spawn(2, tempo="quick") as phones:
        try:
            devices = [AdbPhone(server, serial) for serial in phones.serials]
            with pool_with(*devices, quarantine_after=2) as pool:

                async def play() -> None:
                    async with pool.lease(30) as phone:
                        await asyncio.to_thread(phone.shell, "true")

                await asyncio.gather(play(), play())
                await asyncio.to_thread(kill, server)
                await asyncio.gather(play(), play())
                assert [row.failures for row in pool.stats()] == [1, 1]
        finally:  # it is this test's own, on a port of its own
            kill(server)


async def test_waiting_callers_fail_once_the_last_phone_has_failed() -> None:
    pool = pool_of(1, quarantine_after=1)

    async def wait() -> None:
        async with pool.lease(30):
            pass

    with contextlib.suppress(DeviceOffline):
        async with pool.lease(1):
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
            raise DeviceOffline("gone")
    with pytest.raises(PoolEmpty, match="all phones have failed"):
        await waiting
    with pytest.raises(PoolEmpty):
        async with pool.lease(1):
            pass


async def test_a_canceled_episode_returns_its_phone() -> None:
    pool = pool_of(1)
    started = asyncio.Event()

    async def play() -> None:
        async with pool.lease(1):
            started.set()
            await asyncio.sleep(60)

    async def wait() -> None:
        async with pool.lease(60):
            pass

    playing = asyncio.create_task(play())
    await started.wait()
    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    playing.cancel()
    waiting.cancel()
    await asyncio.gather(playing, waiting, return_exceptions=True)
    async with pool.lease(5):
        pass


@pytest.mark.adb
async def test_virtual_phones_and_their_serials_are_the_same_code(adb_server: AdbServer) -> None:
    with open_source("virtual:2", tempo="quick") as pool:
        assert len(pool) == 2
        with open_source(pool.serials) as second:
            async with second.lease(5) as phone:
                assert phone.screenshot().shape == (1280, 720, 3)
        assert set(pool.serials) <= set(adb_server.devices())
        async with pool.lease(5) as phone:
            phone.screenshot()
        assert max(row.busy_share for row in pool.stats()) > 0
    assert not set(pool.serials) & set(adb_server.devices())


@pytest.mark.adb
@pytest.mark.slow
async def test_virtual_phones_whose_process_dies_are_started_again(
    adb_server: AdbServer, caplog: pytest.LogCaptureFixture
) -> None:
    options = PoolOptions(quarantine_after=2, quarantine_s=0.5, patience_s=300)
    with open_source("virtual:2", tempo="quick", options=options) as pool:
        serials, pids = set(pool.serials), set[int]()
        for _ in range(4):
            async with pool.lease(60) as phone:
                serialno = await asyncio.to_thread(phone.shell, "getprop", "ro.serialno")
                pid = int(serialno.rpartition("P")[2])
                pids.add(pid)
                await asyncio.to_thread(phone.screenshot)
            os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(DeviceError):
                async with pool.lease(60) as phone:
                    await asyncio.to_thread(phone.shell, "true")
        assert len(pids) == 4
        assert caplog.text.count("; restarting it") == 3
        start = time.monotonic()
        with pytest.raises(PoolEmpty, match="all phones have failed"):
            async with pool.lease(60) as phone:
                await asyncio.to_thread(phone.shell, "true")
        assert time.monotonic() - start < 60, "not devices.patience_s"
        assert set(pool.serials) == serials
    assert not serials & set(adb_server.devices()), "nothing stays offline"


@pytest.mark.adb
@pytest.mark.slow
def test_virtual_phones_of_a_killed_process_do_not_stay_in_adb_s_list(
    adb_server: AdbServer,
) -> None:
    script = """
import time
from agentrl.devices import open_source
if __name__ == "__main__":
    print(*open_source("virtual:2").serials, flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        serials = set(job.stdout.readline().decode().split())
        assert serials <= set(adb_server.devices())
        job.kill()
    end = time.monotonic() + 20
    while serials & set(adb_server.devices()):
        assert time.monotonic() < end, adb_server.devices()
        time.sleep(0.05)
