"""A wake-up for asyncio that, unlike `asyncio.Event`, has no flag to clear."""

import asyncio


class Wakeup:
    """Wakes all current waiters on each notification; later waiters wait for the next."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait for the next notification."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def notify(self) -> None:
        """Wake all current waiters."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
