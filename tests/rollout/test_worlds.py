import time
from dataclasses import replace

import pytest

from agentrl import devices
from agentrl.config import EnvConfig
from agentrl.errors import ConfigError, NoDevice
from agentrl.rollout.collector import tickets_of_step
from agentrl.rollout.worlds import PhoneWorlds, _part
from agentrl.types import Outcome
from tests.rollout.test_collector import episode_of


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("virtual:7", ["virtual:4", "virtual:3"]),
        (["a", "b:1", "c"], [["a", "c"], ["b:1"]]),
    ],
)
def test_every_phone_goes_to_one_process(source, parts):
    assert [_part(source, k, 2) for k in range(2)] == parts


@pytest.mark.parametrize("source", ["virtual", "virtual:1", "192.168.1.7:5555", ["a"]])
def test_more_processes_than_phones_are_refused(source):
    with pytest.raises(ConfigError, match="fewer phones"):
        _part(source, 0, 2)


def test_one_process_takes_the_source_as_it_is():
    assert _part("192.168.1.7:5555", 0, 1) == "192.168.1.7:5555"


@pytest.mark.adb
async def test_episode_waits_for_a_busy_phone_only_so_long(adb_server):
    async def play(world):
        raise AssertionError("there was no phone to play on")

    with devices.open_source("virtual:2") as pool:
        worlds = PhoneWorlds(EnvConfig(), pool, None, lease_s=0.3, count=2)
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
        worlds = PhoneWorlds(EnvConfig(), pool, None, lease_s=30, count=1)
        failed = (Outcome.DEVICE_ERROR, "DeviceOffline: gone")
        for outcome, why in (failed, failed, (third, error), failed):

            async def end(world, outcome=outcome, why=why):
                return replace(episode_of(ticket, outcome), error=why)

            assert (await worlds.visit(end)).outcome is outcome
        (phone,) = pool.stats()
        assert (phone.failures, phone.quarantined) == (3, put_aside)
