"""Deadlines that all waits of a call share."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Deadline:
    """The time by which every wait in a call must end."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left_s(self) -> float:
        """Return the remaining seconds, more than 0; raise TimeoutError if none are left."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    @property
    def has_passed(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self._end


def run_with_deadline(deadline: Deadline, call: Callable[[], T]) -> T:
    """Run a call that has no timeout in a thread, which is abandoned at the deadline."""
    done: list[tuple[T | None, BaseException | None]] = []

    def work() -> None:
        try:
            done.append((call(), None))
        except BaseException as error:
            done.append((None, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(deadline.left_s())
    if not done:
        raise TimeoutError
    result, error = done[0]
    if error is not None:
        raise error
    return result  # type: ignore[return-value]
