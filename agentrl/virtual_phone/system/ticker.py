"""The passage of time in apps."""

import asyncio
from collections.abc import Callable, Coroutine

from agentrl.virtual_phone.system.device_state import DeviceState
from agentrl.virtual_phone.system.phone_display import PhoneDisplay


class Ticker:
    """Advances time in the app in front, if the app asks for ticks.

    As on a real phone, time stops while an app is covered by a dialog or not in front, and while
    the phone sleeps.
    """

    def __init__(
        self,
        phone: DeviceState,
        display: PhoneDisplay,
        start: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        """Start stopped.

        Args:
            phone: phone whose apps receive ticks.
            display: display of the phone.
            start: runs a coroutine in the background of the phone.
        """
        self._phone = phone
        self._display = display
        self._start = start
        self._is_running = False

    def wake(self) -> None:
        """Start ticking if the app now shown asks for it."""
        if not self._is_running and self._tick_ms():
            self._is_running = True
            self._start(self._run())

    async def _run(self) -> None:
        """Send whole ticks, including overdue ones: a phone that was busy catches up."""
        loop = asyncio.get_running_loop()
        last_tick_s = loop.time()
        try:
            while tick_ms := self._tick_ms():
                await asyncio.sleep(tick_ms / 1000)
                ticks = int((loop.time() - last_tick_s) * 1000 / tick_ms)
                last_tick_s += ticks * tick_ms / 1000
                if ticks and self._tick_ms():
                    self._pass(ticks * tick_ms)
        finally:
            self._is_running = False

    def _pass(self, ms: int) -> None:
        tasks, front = self._phone.tasks, self._phone.tasks.front
        if tasks.feed(("tick", ms), front) or tasks.front != front:  # it may have crashed
            self._display.show_later()

    def _tick_ms(self) -> int:
        """The tick interval of the app in front; 0 if it is not ticking."""
        phone, tasks = self._phone, self._phone.tasks
        installed = tasks.installed
        if installed is None or phone.is_hidden or phone.dialog is not None:
            return 0
        if tasks.front not in tasks.running or self._display.shown.front != tasks.front:
            return 0
        return int(getattr(installed.app, "tick_ms", 0))
