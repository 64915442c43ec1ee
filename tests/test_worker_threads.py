"""Worker threads are reused, and one that hangs does not block others."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentrl.worker_threads import Worker, Workers


async def test_sequential_calls_share_a_thread_and_concurrent_calls_do_not():
    workers = Workers("test")
    first = await workers.call(threading.get_ident)
    with pytest.raises(ZeroDivisionError):
        await workers.call(lambda: 1 / 0)
    assert await workers.call(threading.get_ident) == first
    both = threading.Barrier(2, timeout=10)

    def wait_for_both():
        both.wait()
        return threading.get_ident()

    assert (
        len({*await asyncio.gather(workers.call(wait_for_both), workers.call(wait_for_both))}) == 2
    )
    workers.close()


async def test_a_hanging_thread_does_not_block_later_calls():
    workers, free = Workers("test"), threading.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await workers.call(free.wait, 60)
    assert await asyncio.wait_for(workers.call(int), 10) == 0
    free.set()
    workers.close()


async def test_threads_end_when_the_workers_are_closed():
    workers = Workers("to end")
    await asyncio.gather(*(workers.call(int) for _ in range(3)))
    workers.close()
    for _ in range(500):
        if not any(thread.name == "to end" for thread in threading.enumerate()):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("threads are left")


def test_no_result_of_many_threads_in_two_loops_is_lost():
    async def ask() -> list[int]:
        async def rounds(number: int) -> int:
            worker = Worker("asked")
            answers = [await worker.call(pow, number, 2) for _ in range(50)]
            worker.close()
            return sum(answers)

        async with asyncio.timeout(60):
            return await asyncio.gather(*map(rounds, range(40)))

    with ThreadPoolExecutor(2) as threads:
        for answered in threads.map(asyncio.run, (ask(), ask())):
            assert answered == [50 * number**2 for number in range(40)]
