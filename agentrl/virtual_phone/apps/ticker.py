"""Time that passes in an app while nobody touches it."""

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentrl.virtual_phone.phone import Phone


class Ticker:
    """Lets the phone's time pass in the app in front, as long as that wants it to.

    What is not in front, or below a dialog, or on a phone asleep, stands still, as on every phone.
    """

    def __init__(self, phone: "Phone") -> None:
        """No time passes yet.

        Args:
            phone: whose time it is.
        """
        self._phone = phone
        self._is_running = False

    def wake(self) -> None:
        """Something else is shown: it may be an app in which time passes."""
        if not self._is_running and self._tick_ms():
            self._is_running = True
            self._phone.in_background(self._run())

    async def _run(self) -> None:
        """Whole ticks only, and all that are due: a phone that was busy catches up."""
        loop = asyncio.get_running_loop()
        told_s = loop.time()
        try:
            while tick_ms := self._tick_ms():
                await asyncio.sleep(tick_ms / 1000)
                ticks = int((loop.time() - told_s) * 1000 / tick_ms)
                told_s += ticks * tick_ms / 1000
                if ticks and self._tick_ms():
                    self._pass(ticks * tick_ms)
        finally:
            self._is_running = False

    def _pass(self, ms: int) -> None:
        tasks, front = self._phone.tasks, self._phone.tasks.front
        if tasks.feed(("tick", ms), front) or tasks.front != front:  # it may have crashed
            self._phone.display.later()

    def _tick_ms(self) -> int:
        """How often the app in front wants to be told; 0 where no time passes in it."""
        phone, tasks = self._phone, self._phone.tasks
        installed = tasks.installed
        if installed is None or phone.is_hidden or phone.dialog is not None:
            return 0
        if tasks.front not in tasks.running or phone.shown.front != tasks.front:
            return 0
        return int(getattr(installed.app, "tick_ms", 0))
