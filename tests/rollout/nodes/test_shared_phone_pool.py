"""Phones shared by several real Ray actors, and what happens when a borrower dies."""

import asyncio
import os
import signal
import time

import pytest

from agentrl.cluster import ray_cluster
from agentrl.config import Config, DeadlinesConfig, DevicesConfig, EnvConfig, RolloutConfig
from agentrl.devices import Tap
from agentrl.errors import DeviceError, LeaseLost, NoDevice
from agentrl.rollout.nodes.shared_phone_pool import SharedPool
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers import open_rollouts
from agentrl.rollout.workers.actor_starter import ActorStarter

pytestmark = [pytest.mark.slow, pytest.mark.adb]
LEASE_S = 3.0
PATIENCE_S = 60


def holder_class():
    """Return a class that Ray pickles by value, because workers cannot import this file."""

    class Holder:
        def __init__(self, phones):
            self.pool = SharedPool(phones)

        async def hold(self):
            """Borrow a phone and keep it."""
            self.context = self.pool.lease(60)
            self.lease = await self.context.__aenter__()
            return os.getpid(), self.lease.serial

        async def tap(self, checked):
            """Tap through the lease if `checked`, else even if the lease has expired."""
            device = self.lease if checked else self.lease._device
            try:
                await asyncio.to_thread(device.perform, Tap(0.5, 0.5))
            except DeviceError as error:
                return type(error).__name__, str(error)
            return None

    return Holder


@pytest.fixture
async def shared(adb_server):
    """Start the owner of two phones on one node, and two processes that each hold one."""
    config = Config(
        env=EnvConfig(id="NumberGame-v0"),
        rollout=RolloutConfig(actors=2, start_deadline_s=PATIENCE_S),
        devices=DevicesConfig(
            source="virtual:2",
            tempo="quick",
            lease_s=LEASE_S,
            deadlines=DeadlinesConfig(command_s=LEASE_S - 1),
        ),
    )
    reservation = open_rollouts.reserve(config.rollout, None)
    ray = ray_cluster.join_cluster()
    starter = ActorStarter(plan_rollouts(config), None, None, 0, reservation)
    await starter.open()
    (phones,) = starter.phones.values()
    actors = [ray.remote(holder_class()).remote(phones) for _ in range(2)]
    pool = SharedPool(phones)
    try:
        yield pool, actors, await asyncio.gather(*(actor.hold.remote() for actor in actors))
    finally:
        pool.close()
        for actor in actors:
            ray.kill(actor)
        await starter.close()
        reservation.release()
        ray_cluster.leave_cluster()


async def test_phones_of_dead_or_hanging_borrowers_are_lent_again_and_refuse_them(shared):
    pool, (_, hung), ((dead_pid, first), (hung_pid, second)) = shared
    assert first != second
    await asyncio.sleep(1.5 * LEASE_S)
    assert await hung.tap.remote(True) is None, "who lives keeps its phone by heartbeats"
    with pytest.raises(NoDevice, match="2 are leased"):
        async with pool.lease(0.1):
            pass
    os.kill(dead_pid, signal.SIGKILL)
    os.kill(hung_pid, signal.SIGSTOP)
    started = time.monotonic()
    async with pool.lease(PATIENCE_S) as one, pool.lease(PATIENCE_S) as two:
        assert time.monotonic() - started < LEASE_S + 20
        assert {one.serial, two.serial} == {first, second}
        os.kill(hung_pid, signal.SIGCONT)
        name, message = await hung.tap.remote(True)
        assert (name, "has expired" in message) == (LeaseLost.__name__, True)
        name, message = await hung.tap.remote(False)
        assert (name, "has a different holder" in message) == (LeaseLost.__name__, True)
        for phone in (one, two):
            await asyncio.to_thread(phone.perform, Tap(0.5, 0.5))
