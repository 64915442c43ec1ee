"""Display of a phone: all effects of an action become visible together, after a delay."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from virtual_phone.apps.app import STATE_FOLDER, state_path
from virtual_phone.device_state import DeviceState
from virtual_phone.system import screen_frame, system_screens
from virtual_phone.system.asyncio_wakeup import Wakeup
from virtual_phone.system.screen_frame import ScreenFrame
from virtual_phone.types import Image

log = logging.getLogger(__name__)

DISPLAY_ID = 4619827259835644672
"""Physical id of the display that shows apps; the second display has the next id."""


@dataclass(slots=True, kw_only=True, frozen=True)
class VisibleState:
    """Everything on the phone that becomes visible at the same time."""

    front: str | None
    """Package in front; None for the home screen."""
    component: str
    """Component in front, as `package/activity`."""
    focus: str | None
    """Title of the focused window: a component or a dialog's title; None if nothing has focus."""
    frame: ScreenFrame
    states: Mapping[str, bytes] = field(default_factory=dict)
    """Published state of every app that is running or has crashed."""


class PhoneDisplay:
    """Screen of one phone, and the files in which its apps publish their states."""

    def __init__(
        self, phone: DeviceState, effect_delay_ms: tuple[float, float], source: random.Random
    ) -> None:
        self.effect_delay_ms = effect_delay_ms
        self._phone = phone
        self._source = source
        self._pending: deque[VisibleState] = deque()
        self._last_due_s = 0.0
        self._frame_key: tuple[object, ...] = ()
        self._frame_area: Image | None = None
        """App image in the last frame; an app whose state has changed draws a new image."""
        self._changed = Wakeup()
        self.on_show: Callable[[], None] = lambda: None
        """Called when a new state becomes visible."""
        self._num_shown = self._num_published = 0
        self.shown = self._now()

    def show_later(self) -> None:
        """Show the current state after the effect delay."""
        delay_s = self._source.uniform(*self.effect_delay_ms) / 1000
        if not delay_s and not self._pending:
            self._show(self._now())
            return
        loop = asyncio.get_running_loop()
        # Show effects in the order of their causes, regardless of the delays drawn.
        self._last_due_s = max(self._last_due_s, loop.time() + delay_s)
        self._pending.append(self._now())
        loop.call_at(self._last_due_s, self._show_next)

    def show_now(self) -> None:
        """Show the current state now, skipping pending effects."""
        self._pending.clear()
        self._show(self._now())

    async def wait_until_idle(self) -> None:
        """Wait until all pending effects are visible."""
        loop = asyncio.get_running_loop()
        while self._pending:
            await asyncio.sleep(max(0.0, self._last_due_s - loop.time()))

    async def wait_for_change(self, shown: VisibleState) -> None:
        """Wait until a state other than `shown` is visible."""
        while self.shown is shown:
            await self._changed.wait()

    def _show_next(self) -> None:
        if self._pending:
            self._show(self._pending.popleft())

    def _show(self, shown: VisibleState) -> None:
        files = self._phone.files
        for package in self.shown.states.keys() - shown.states.keys():
            if files.find(state_path(package)) is not None:
                files.remove(state_path(package))
        self.shown = shown
        self._changed.notify()
        self.on_show()
        self._num_shown += 1
        late_s = self._phone.faults.draw("publish_late_s")
        if late_s:
            loop = asyncio.get_running_loop()
            loop.call_later(late_s, self._publish, shown, self._num_shown)
        else:
            self._publish(shown, self._num_shown)

    def _publish(self, shown: VisibleState, number: int) -> None:
        if number < self._num_published:  # a later state is already published
            return
        self._num_published = number
        files = self._phone.files
        try:
            if files.find(STATE_FOLDER) is None:
                files.make_folders(STATE_FOLDER)
            for package, state in shown.states.items():
                files.write(state_path(package), state)
        except OSError as error:  # disk full, or the path is taken
            self._phone.log.add("agentrl", f"cannot publish the state: {error.strerror}", "E")

    def _now(self) -> VisibleState:
        """Return the current state, redrawing the frame if anything has changed."""
        phone, tasks = self._phone, self._phone.tasks
        published = sorted(tasks.running | tasks.crashed)
        return VisibleState(
            front=tasks.front,
            component=tasks.component,
            focus=phone.focus,
            frame=self._draw(),
            states={name: tasks.apps[name].published() for name in published},
        )

    def _draw(self) -> ScreenFrame:
        phone, tasks, installed = self._phone, self._phone.tasks, self._phone.tasks.installed
        size = width, height = phone.geometry.size
        clock = tasks.clock_s
        time = f"{clock // 3600 % 24:02d}:{clock // 60 % 60:02d}"
        area = None
        if installed is not None and not phone.is_hidden:
            area = installed.draw(*phone.geometry.area)
        power = (phone.power.awake, phone.power.locked)
        key = (size, power, phone.dialog, time, tuple(tasks.apps))
        if key != self._frame_key or area is not self._frame_area:
            self._drawn = (
                screen_frame.compose(self._above(area, time), width, height, time)
                if phone.power.awake
                else screen_frame.black(width, height)
            )
            self._frame_key, self._frame_area = key, area
        return self._drawn

    def _above(self, area: Image | None, time: str) -> Image:
        """Draw the app area with the lock screen or a dialog on top."""
        phone = self._phone
        width, height = phone.geometry.area
        if phone.power.locked:
            return system_screens.keyguard(width, height, time)
        if area is None:
            names = [name.rpartition(".")[2] for name in phone.tasks.apps]
            area = system_screens.home(width, height, names)
        return area if phone.dialog is None else phone.dialog.drawn_on(area)
