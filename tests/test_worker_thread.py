"""Worker threads execute calls, and no result of many is lost."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentrl.worker_thread import Worker


async def test_a_worker_raises_what_its_calls_raise_and_its_thread_ends_with_it():
    worker = Worker("to end")
    with pytest.raises(ZeroDivisionError):
        await worker.call(lambda: 1 / 0)
    assert await worker.call(int) == 0
    worker.close()
    assert await asyncio.to_thread(worker.join, 10.0)


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
