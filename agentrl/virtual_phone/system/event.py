"""Waiting for something to happen, for as many as want to."""

import asyncio


class Bell:
    """Whoever waits goes on when it rings; whoever comes later waits for the next time."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait until it rings."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def ring(self) -> None:
        """Let everybody who waits go on."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
