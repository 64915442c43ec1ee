import threading

import pytest

from agentrl.training.learner.micro_batches import prefetch

DEADLINE_S = 20.0


def test_items_are_prepared_by_another_thread_one_ahead_of_the_caller():
    prepared = []
    second = threading.Event()

    def prepare():
        for number in range(4):
            prepared.append((number, threading.current_thread()))
            if number == 1:
                second.set()
            yield number

    items = prefetch(prepare())
    assert next(items) == 0
    assert second.wait(DEADLINE_S), "prepared while the caller has the first"
    assert list(items) == [1, 2, 3]
    assert [number for number, _ in prepared] == [0, 1, 2, 3]
    [thread] = {thread for _, thread in prepared}
    assert thread is not threading.current_thread()
    assert not thread.is_alive()


def test_an_exception_is_raced_to_the_caller_where_its_item_was_due():
    def prepare():
        yield 1
        raise ValueError("no memory")

    items = prefetch(prepare())
    assert next(items) == 1
    with pytest.raises(ValueError, match="no memory"):
        next(items)


def test_the_thread_ends_with_a_caller_that_stops_early():
    threads = []

    def prepare():
        while True:
            threads.append(threading.current_thread())
            yield 1

    def compute():
        for _ in prefetch(prepare()):
            raise ZeroDivisionError

    for _ in prefetch(prepare()):
        break
    with pytest.raises(ZeroDivisionError):
        compute()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert not any(thread.is_alive() for thread in threads)
    assert len(threads) <= 4, "at most one item ahead"
