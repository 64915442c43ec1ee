"""A wake-up for asyncio that, unlike `asyncio.Event`, has no flag to clear."""

import asyncio


class Wakeup(asyncio.Event):
    """Wakes all current waiters on each notification; later waiters wait for the next."""

    def notify(self) -> None:
        """Wake all current waiters."""
        self.set()
        self.clear()
