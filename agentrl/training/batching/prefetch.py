"""Items that a thread prepares while the caller works on the one before."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yield the items, each prepared by a thread while the caller has the previous one.

    At most one item is prepared ahead. The thread ends with this generator, also if the caller
    closes or drops it early. An exception of `items` is raised where its item was due.
    """
    with ThreadPoolExecutor(1, "prefetch") as thread:
        upcoming = thread.submit(next, items, None)
        while (item := upcoming.result()) is not None:
            upcoming = thread.submit(next, items, None)
            yield item
