import time
from dataclasses import replace

import pytest

from agentrl import devices
from agentrl.config import EnvConfig
from agentrl.errors import NoDevice
from agentrl.rollout.collector import tickets_of_step
from agentrl.rollout.worlds import PhoneWorlds
from agentrl.types import Outcome
from tests.rollout.test_collector import episode_of


@pytest.mark.adb
async def test_episode_waits_for_a_busy_phone_only_so_long(adb_server):
    async def play(world):
        raise AssertionError("there was no phone to play on")

    with devices.open_source("virtual:2") as pool:
        worlds = PhoneWorlds(lambda split: EnvConfig(), pool, None, lease_s=0.3, count=2)
        async with pool.lease(1), pool.lease(1):
            started = time.monotonic()
            with pytest.raises(NoDevice):
                await worlds.visit(play)
            assert 0.5 < time.monotonic() - started < 3


@pytest.mark.adb
@pytest.mark.parametrize(
    ("third", "error", "put_aside"),
    [
        (Outcome.TIMEOUT, None, True),
        (Outcome.DEVICE_ERROR, "AppLeft: call: it rang", True),
        (Outcome.TERMINATED, None, False),
    ],
)
async def test_episode_that_was_given_up_or_left_neither_counts_nor_makes_up_for_a_failure(
    adb_server, third, error, put_aside
):
    (ticket,) = tickets_of_step("train", 1, [5], 1)
    with devices.open_source("virtual:1") as pool:
        worlds = PhoneWorlds(lambda split: EnvConfig(), pool, None, lease_s=30, count=1)
        failed = (Outcome.DEVICE_ERROR, "DeviceOffline: gone")
        for outcome, why in (failed, failed, (third, error), failed):

            async def end(world, outcome=outcome, why=why):
                return replace(episode_of(ticket, outcome), error=why)

            assert (await worlds.visit(end)).outcome is outcome
        (phone,) = pool.stats()
        assert (phone.failures, phone.quarantined) == (3, put_aside)
