"""Phones that come, go and return, on a real adb server of the test's own."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from agentrl.child_process import free_port
from agentrl.devices import Deadlines, DevicePool, PoolOptions, open_source
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.pool.connection_routes import group_by_phone
from agentrl.devices.pool.lease import LeasableDevice
from agentrl.devices.pool.lease_ledger import PhoneAvailability
from agentrl.devices.pool.recovery import RecoveryLadder
from agentrl.errors import ConfigError, DeviceError
from virtual_phone import spawn
from virtual_phone.spawn import VirtualPhones

pytestmark = pytest.mark.adb
PATIENCE_S = 40
HASTY = PoolOptions(quarantine_s=0.2)


@pytest.fixture(scope="module")
def server() -> Iterator[AdbServer]:
    """A server that knows no other phones, and that all that is opened uses."""
    port = free_port()
    server = AdbServer(port=port)
    server.ensure(PATIENCE_S)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        yield server
    with contextlib.suppress(DeviceError):  # it is this test's own, on a port of its own
        server.query("host:kill", Deadline(5))


@pytest.fixture
def phones(server: AdbServer) -> Iterator[VirtualPhones]:
    with spawn(2, ["virtual_phone.apps.probe_app:ProbeApp"], tempo="quick") as phones:
        yield phones
    for serial in server.devices():
        server.disconnect(serial)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def tended(pool: DevicePool) -> AsyncIterator[None]:
    """A pool that somebody uses all the time."""

    async def play() -> None:
        while True:
            with contextlib.suppress(DeviceError):
                async with pool.lease(PATIENCE_S) as phone:
                    await asyncio.to_thread(phone.shell, "true")
            await asyncio.sleep(0.02)

    playing = asyncio.create_task(play())
    yield
    playing.cancel()


def aside(pool: DevicePool) -> list[bool]:
    return [row.quarantined for row in pool.stats()]


async def test_a_phone_connected_later_joins_and_one_that_left_returns(
    server: AdbServer, phones: VirtualPhones
) -> None:
    with pytest.raises(ConfigError, match="no phone is ready"):
        open_source("connected")
    first, second = phones.serials
    server.connect(first)
    with open_source("connected", options=HASTY, deadlines=Deadlines(connect_s=2)) as pool:
        assert pool.serials == (first,)
        async with tended(pool):
            server.connect(second)
            await until(lambda: len(pool) == 2 and pool.stats()[1].leases > 1)
            os.kill(phones.pid, signal.SIGSTOP)  # as a phone whose network is gone
            server.disconnect(first)
            server.disconnect(second)
            await until(lambda: aside(pool) == [True, True])
            os.kill(phones.pid, signal.SIGCONT)
            before = [row.leases for row in pool.stats()]
            await until(lambda: aside(pool) == [False, False])
            await until(
                lambda: all(r.leases > n for r, n in zip(pool.stats(), before, strict=True))
            )


@pytest.mark.slow
async def test_two_serials_that_appear_together_may_be_one_phone(
    server: AdbServer, phones: VirtualPhones
) -> None:
    first, port = phones.serials[0], phones.ports[1]
    server.connect(first)
    with open_source("connected", options=HASTY, deadlines=Deadlines(connect_s=5)) as pool:
        routes = {f"127.0.0.1:{port}", f"localhost:{port}"}
        keeper, both_opened = pool.manager, threading.Barrier(2)
        open_newcomer = keeper._open_newcomer
        assert open_newcomer is not None

        def open_together(serial: str) -> LeasableDevice:
            device = open_newcomer(serial)
            both_opened.wait(PATIENCE_S)
            return device

        keeper._open_newcomer = open_together
        for serial in routes:
            server.connect(serial)
        async with tended(pool):
            await until(lambda: {device.serial for device in keeper.routes.devices()} > routes)
        assert len(pool) == len(list(keeper.routes)) == 2


async def test_two_serials_of_one_phone_are_two_routes(
    server: AdbServer, phones: VirtualPhones
) -> None:
    port, other = phones.ports[0], phones.serials[1]
    cable, wifi = f"127.0.0.1:{port}", f"localhost:{port}"
    with open_source([cable, wifi, other], deadlines=Deadlines(connect_s=1)) as pool:
        assert pool.serials == (cable, other)
        async with pool.lease(5) as one, pool.lease(5) as two:
            assert {one.serial, two.serial} == {cable, other}
        # The cable is pulled: reconnecting finds no phone.
        routes = pool.manager.routes.to(cable)
        routes[0].reconnect = lambda: routes[0].transport.check_online()  # type: ignore[method-assign]
        server.disconnect(cable)
        async with pool.lease(PATIENCE_S) as one, pool.lease(PATIENCE_S) as two:
            assert {one.serial, two.serial} == {wifi, other}
            assert one.shell("echo", "on") == two.shell("echo", "on") == "on\n"
        assert pool.serials == (cable, other)


def test_emulators_of_one_image_are_two_phones(server: AdbServer, phones: VirtualPhones) -> None:
    devices = [AdbPhone(server, serial) for serial in phones.serials]
    for device in devices:
        device._serialno = "EMULATOR36X1X9X0"
    assert [len(routes) for routes in group_by_phone(devices)] == [1, 1]
    for device in devices:
        device.close()


async def test_a_phone_whose_faults_end_returns_from_quarantine(
    server: AdbServer, phones: VirtualPhones
) -> None:
    bad, good = phones.serials
    with open_source(list(phones.serials), options=HASTY) as pool:
        helper = AdbPhone(server, bad)

        async def play() -> None:
            with contextlib.suppress(DeviceError):
                async with pool.lease(PATIENCE_S) as phone:
                    await asyncio.to_thread(phone.screenshot)

        helper.shell("setprop", "debug.agentrl.fault.capture", "black")
        while not aside(pool)[0]:
            await play()
        assert pool.stats()[0].failures == 3
        await until(lambda: pool.stats()[0].recoveries == {"retry": 3, "reconnect": 2, "stop": 2})
        leases = pool.stats()[0].leases
        for _ in range(10):
            await play()
        assert pool.stats()[0].leases == leases, "it answers, and shows nothing"
        helper.shell("setprop", "debug.agentrl.fault.capture", "")
        await until(lambda: not aside(pool)[0])
        async with pool.lease(5) as one, pool.lease(5) as two:
            assert {one.serial, two.serial} == {bad, good}
        assert pool.manager.ledger.count(PhoneAvailability.FREE) == 2


def test_a_phone_is_rebooted_only_if_allowed(server: AdbServer, phones: VirtualPhones) -> None:
    phone = AdbPhone(server, phones.serials[0], Deadlines(connect_s=20, command_s=20))
    phone.launch("org.agentrl.probe", ".Main", {})
    assert RecoveryLadder().recover([phone], 3, ["org.agentrl.probe"]).steps == (
        "retry",
        "reconnect",
        "stop",
    )
    assert phone.focus() != "org.agentrl.probe"
    climb = RecoveryLadder(reboot=True).recover([phone], 3)
    assert (climb.route, climb.steps[-1]) == (0, "reboot")
    assert "the phone has started" in phone.shell("logcat", "-d")
    phone.close()
