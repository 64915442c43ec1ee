import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from agentrl.errors import LearnerLost
from agentrl.training.stop_signals import acknowledge_stop_signals


async def stopped_in_a_block(number, block_s, grace_s, done):
    with acknowledge_stop_signals("SIGUSR1", grace_s=grace_s) as stopping:
        async with stopping.completed_first():
            os.kill(os.getpid(), number)
            await asyncio.sleep(block_s)
            done.append("block")
        done.append("after")
        await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGUSR1, 138)]
)
def test_a_signal_stops_after_the_block_in_progress(number, status):
    before, done = signal.signal(number, signal.SIG_DFL), []  # ignored if these tests run in nohup
    try:
        with pytest.raises(SystemExit) as ended:
            asyncio.run(stopped_in_a_block(number, 0.1, 60.0, done))
        assert (ended.value.code, done) == (status, ["block"])
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_hangup_that_nohup_ignores_stays_ignored():
    before, done = signal.signal(signal.SIGHUP, signal.SIG_IGN), []
    try:
        with pytest.raises(TimeoutError):
            asyncio.run(asyncio.wait_for(stopped_in_a_block(signal.SIGHUP, 0.01, 60.0, done), 0.3))
        assert done == ["block", "after"]
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_block_that_takes_too_long_is_stopped():
    started, done = time.monotonic(), []
    with pytest.raises(SystemExit):
        asyncio.run(stopped_in_a_block(signal.SIGTERM, 60.0, 0.1, done))
    assert not done
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("begun", [True, False])
def test_a_signal_interrupts_a_block_that_awaits_nothing(begun):
    closed = []

    async def start():
        with acknowledge_stop_signals() as stopping:
            try:
                if not begun:
                    os.kill(os.getpid(), signal.SIGTERM)
                with stopping.interrupting():
                    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGTERM]).start()
                    time.sleep(60)
            finally:
                await asyncio.sleep(0.1)
                closed.append("in order")

    started = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        asyncio.run(start())
    assert (ended.value.code, closed) == (143, ["in order"])
    assert time.monotonic() - started < 30


def test_a_signal_outside_of_a_block_stops_at_once():
    async def play():
        with acknowledge_stop_signals(grace_s=60.0) as stopping:
            async with stopping.completed_first():
                pass
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(60)

    started = time.monotonic()
    with pytest.raises(SystemExit):
        asyncio.run(play())
    assert time.monotonic() - started < 30


def test_what_fails_after_a_signal_does_not_change_the_status(caplog):
    async def work():
        with acknowledge_stop_signals(grace_s=60.0) as stopping:
            async with stopping.completed_first():
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0.1)
                raise LearnerLost("rank 1 of the learner died")  # it got the signal, too

    with pytest.raises(SystemExit) as ended:
        asyncio.run(work())
    assert ended.value.code == 143
    assert "while stopping: rank 1 of the learner died" in caplog.text


def test_a_disk_that_is_full_when_a_job_is_stopped_is_one_line(caplog):
    async def work():
        with acknowledge_stop_signals(grace_s=60.0) as stopping:
            async with stopping.completed_first():
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0.1)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "run/checkpoints")

    with pytest.raises(SystemExit) as ended:
        asyncio.run(work())
    assert ended.value.code == 143
    assert "while stopping: OSError: [Errno 28] No space left on device" in caplog.text
    assert "Traceback" not in caplog.text


def test_ctrl_c_stops_after_the_block_in_progress():
    before, done = signal.signal(signal.SIGINT, signal.default_int_handler), []
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(stopped_in_a_block(signal.SIGINT, 0.1, 60.0, done))
        assert done == ["block"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_after_the_last_wait_is_not_lost():
    async def export():
        with acknowledge_stop_signals():
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as ended:
        asyncio.run(export())
    assert ended.value.code == 143


TWICE = """
import asyncio, os, signal, sys
from agentrl.training.stop_signals import acknowledge_stop_signals

async def work():
    with acknowledge_stop_signals(grace_s=60.0) as stopping:
        async with stopping.completed_first():
            os.kill(os.getpid(), int(sys.argv[1]))
            await asyncio.sleep(0.1)
            os.kill(os.getpid(), int(sys.argv[1]))
            await asyncio.sleep(60)

asyncio.run(work())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once(number):
    command = [sys.executable, "-c", TWICE, str(int(number))]
    done = subprocess.run(
        command,
        timeout=50,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.returncode == -number
