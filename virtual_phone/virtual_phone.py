"""A virtual phone, assembled from its parts."""

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Literal

from virtual_phone.apps.app import App, LiveApp
from virtual_phone.apps.dialogs import KINDS
from virtual_phone.apps.installed_app import InstalledApp
from virtual_phone.device_state import DeviceState
from virtual_phone.faults.faults import Faults
from virtual_phone.input_handler import InputHandler
from virtual_phone.phone_display import PhoneDisplay, VisibleState
from virtual_phone.phones_spec import EFFECT_DELAY_MS, Tempo
from virtual_phone.system.command_history import CommandHistory
from virtual_phone.system.input_devices import InputDrivers
from virtual_phone.system.phone_network import PhoneNetwork
from virtual_phone.system.process_table import ProcessTable
from virtual_phone.system.screen_frame import ScreenFrame

QUICK_REBOOT_S = 0.2
_DENSITY_OF_ONE = 160
"""Density in dots per inch at which a density-independent pixel is one pixel."""


class VirtualPhone(DeviceState):
    """A virtual phone. It belongs to one event loop and is not thread-safe."""

    def __init__(
        self,
        apps: Sequence[App] = (),
        *,
        size: tuple[int, int] = (720, 1280),
        tempo: Tempo = "real",
        effect_delay_ms: tuple[float, float] | None = None,
        seed: int = 0,
        number: int = 0,
        serialno: str | None = None,
    ) -> None:
        """Create a phone that shows its home screen.

        Args:
            apps: installed apps.
            size: width and height of the screen, in pixels.
            tempo: whether gestures take time (`real`) or are instant (`quick`).
            effect_delay_ms: shortest and longest delay between a touch and its visible effect;
                (0, 0) shows the effect before the command ends. None uses the tempo's default.
            seed: seed of the clock; the same seed and the same touches give the same frames.
            number: index of this phone among the phones with the same seed, which differ only in
                their delays and faults.
            serialno: value of `ro.serialno`.
        """
        super().__init__(
            apps,
            size,
            seed,
            tempo,
            serialno or f"VIRTUAL{seed:04d}{number:03d}",
            Faults(random.Random(f"faults/{seed}/{number}"), self._apply_fault),
        )
        self.network = PhoneNetwork()
        delay_ms = EFFECT_DELAY_MS[tempo] if effect_delay_ms is None else effect_delay_ms
        self.display = PhoneDisplay(self, delay_ms, random.Random(f"{seed}/{number}"))
        self.processes = ProcessTable()
        self.show_now = self.display.show_now
        self.input = InputHandler(self, self.display)
        self.display.on_show = Ticker(self).wake
        self.tasks.on_change = self._on_change
        self.command_history = CommandHistory()
        self.on_power: Callable[[str, float], None] = lambda what, seconds: None
        """Called with `offline` or `reboot` and a duration in seconds; the server acts on it."""
        self.stale: VisibleState | None = None
        """State shown in captures while the `capture` fault is `stale`."""
        self.sent_frame: ScreenFrame | None = None
        """Last frame sent to a client that requests changes only."""
        self._jobs: set[asyncio.Task[None]] = set()
        for installed in self.tasks.apps.values():
            if isinstance(installed.app, LiveApp):
                installed.app.attach(LiveAppHost(self, installed))

    @property
    def shown(self) -> VisibleState:
        """Currently visible state."""
        return self.display.shown

    @property
    def captured(self) -> VisibleState:
        """State shown in captures: the visible state, or the state at which captures went stale."""
        return self.shown if self.stale is None else self.stale

    def in_background(self, job: Coroutine[None, None, None]) -> None:
        """Run a coroutine in the background until it ends or the phone reboots."""
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    def restart(self) -> None:
        """Reset everything that does not survive a reboot."""
        for key in [key for key in self.properties if key.startswith("debug.")]:
            del self.properties[key]
        self.dialog = None
        self.power.awake, self.power.locked = True, False
        self.battery.reset()
        self.drivers = InputDrivers(self.geometry)
        self.clock.restart()
        self.faults.clear()
        self.tasks.end_all()
        for job in self._jobs:
            job.cancel()
        self.log.add("boot", "the phone has started")
        self.display.show_now()

    async def shut_down(self) -> None:
        """End everything that runs outside this process."""
        for installed in self.tasks.apps.values():
            if isinstance(installed.app, LiveApp):
                await installed.app.shut_down()

    def _on_change(self) -> None:
        if self.faults.get("front").partition("/")[0] != self.tasks.front:
            self.faults.forget("front")  # the user has left the app
        self.display.show_later()

    def _apply_fault(self, name: str, old: str, value: str) -> None:
        """Apply the immediate effect of setting a fault, or of clearing it with an empty value.

        Other faults are read where they take effect: in services, captures and `input`.
        """
        if name == "front":
            self._apply_front(old, value)
        elif name == "dialog":
            self._apply_dialog(value)
        elif name == "rotation":
            self.geometry.sensor = int(value or "0")
            self.show_now()
        elif name == "capture":
            self.stale = self.shown if value == "stale" else None
        elif name == "storage_mb":
            num_bytes = self.faults.draw("storage_mb") * 1e6
            self.files.limit_free(round(num_bytes) if value and num_bytes < math.inf else None)
        elif name in ("offline_s", "reboot") and value:
            seconds = self.faults.draw(name)
            self.faults.forget(name)
            self.on_power(name.removesuffix("_s"), seconds)

    def _apply_front(self, old: str, value: str) -> None:
        package, _, activity = value.partition("/")
        if package:
            self.tasks.bring_to_front(package, activity or None)
        elif old and self.tasks.front == old.partition("/")[0]:
            self.tasks.back()

    def _apply_dialog(self, value: str) -> None:
        for kind in KINDS:
            if kind == value:
                self.show_dialog(kind)
        if not value and self.dialog is not None:
            self.end_dialog()


class LiveAppHost:
    """What a phone offers to one of its live apps; see `AppHost`."""

    def __init__(self, phone: VirtualPhone, installed: InstalledApp) -> None:
        self.network = phone.network
        self._phone, self._installed = phone, installed

    @property
    def area(self) -> tuple[int, int]:
        """Width and height of the app's area, in pixels."""
        return self._phone.geometry.area

    @property
    def scale(self) -> float:
        """Pixels per density-independent pixel."""
        geometry = self._phone.geometry
        return (geometry.density_override or geometry.physical_density) / _DENSITY_OF_ONE

    def changed(self) -> None:
        """Show what the app draws now."""
        self._installed.area = None
        if self._phone.tasks.installed is self._installed:
            self._phone.display.show_later()

    def handled(self) -> None:
        """Count a touch or key whose effect the app draws now, and show it."""
        self._installed.count_touch()
        self.changed()

    def leave(self) -> None:
        """Leave the app for the one below it, as BACK does."""
        if self._phone.tasks.installed is self._installed:
            self._phone.tasks.back()

    def fail(self, kind: Literal["anr", "crash"]) -> None:
        """Show the system's dialog about the app; in the background, a crash only ends it."""
        tasks, package = self._phone.tasks, self._installed.app.package
        dialog = self._phone.dialog
        is_free = dialog is None or (dialog.kind, kind) == ("anr", "crash")
        if tasks.installed is self._installed and is_free:
            self._phone.show_dialog(kind)
        elif kind == "crash" and package in tasks.running:
            tasks.crash(package)
            self._phone.display.show_later()


class Ticker:
    """Advances time in the app in front if the app requests ticks.

    As on a real phone, time stops while the app is covered by a dialog or not in front, and while
    the phone sleeps.
    """

    def __init__(self, phone: VirtualPhone) -> None:
        self._phone = phone
        self._is_running = False

    def wake(self) -> None:
        """Start ticking if the app now shown requests ticks."""
        if not self._is_running and self._tick_ms():
            self._is_running = True
            self._phone.in_background(self._run())

    async def _run(self) -> None:
        """Send whole ticks; a phone that was busy catches up on overdue ticks."""
        loop = asyncio.get_running_loop()
        last_tick_s = loop.time()
        try:
            while tick_ms := self._tick_ms():
                await asyncio.sleep(tick_ms / 1000)
                # Carry the remainder over to the next tick, so that the clock does not drift.
                ticks = int((loop.time() - last_tick_s) * 1000 / tick_ms)
                last_tick_s += ticks * tick_ms / 1000
                if ticks and self._tick_ms():
                    self._pass(ticks * tick_ms)
        finally:
            self._is_running = False

    def _pass(self, ms: int) -> None:
        tasks, front = self._phone.tasks, self._phone.tasks.front
        if tasks.feed(("tick", ms), front) or tasks.front != front:  # the app may have crashed
            self._phone.display.show_later()

    def _tick_ms(self) -> int:
        """Return the tick interval of the app in front; 0 if it is not ticking."""
        phone, tasks = self._phone, self._phone.tasks
        installed = tasks.installed
        if installed is None or phone.is_hidden or phone.dialog is not None:
            return 0
        if tasks.front not in tasks.running or self._phone.display.shown.front != tasks.front:
            return 0
        return int(getattr(installed.app, "tick_ms", 0))
