"""A virtual phone: its parts and its behavior."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from agentrl.virtual_phone.apps.apk import ApkManifest
from agentrl.virtual_phone.apps.app import App
from agentrl.virtual_phone.apps.app_tasks import AppTasks
from agentrl.virtual_phone.apps.system_apps import LAUNCHER
from agentrl.virtual_phone.apps.ticker import Ticker
from agentrl.virtual_phone.faults import fault_effects
from agentrl.virtual_phone.faults.faults import Faults
from agentrl.virtual_phone.system import phone_settings, snapshot
from agentrl.virtual_phone.system.device_log import CommandHistory
from agentrl.virtual_phone.system.dialogs import Dialog, Kind, Outcome
from agentrl.virtual_phone.system.file_system import FileSystem
from agentrl.virtual_phone.system.input_handler import InputHandler
from agentrl.virtual_phone.system.network import PhoneNetwork
from agentrl.virtual_phone.system.phone_display import PhoneDisplay, VisibleState
from agentrl.virtual_phone.system.phone_settings import PhoneSettings
from agentrl.virtual_phone.system.power import Battery, Power
from agentrl.virtual_phone.system.screen_geometry import ScreenGeometry

_ROTATION_SETTINGS = ("accelerometer_rotation", "user_rotation")


class VirtualPhone:
    """A virtual phone. It belongs to one event loop and is not thread-safe."""

    def __init__(
        self,
        apps: Sequence[App] = (),
        *,
        size: tuple[int, int] = (720, 1280),
        effect_delay_ms: tuple[float, float] = (50, 300),
        seed: int = 0,
        number: int = 0,
        serialno: str | None = None,
    ) -> None:
        """Create a phone that shows its home screen.

        Args:
            apps: installed apps.
            size: width and height of the screen, in pixels.
            effect_delay_ms: shortest and longest delay between a touch and its visible effect;
                (0, 0) shows the effect before the command ends.
            seed: seed of its clock; the same seed and the same touches give the same frames.
            number: index of this phone among others of that seed, which differ only in their
                delays and faults.
            serialno: value of `ro.serialno`.
        """
        self.seed = seed
        self.serialno = serialno or f"VIRTUAL{seed:04d}{number:03d}"
        self.files = FileSystem()
        self.tasks = AppTasks(apps, seed)
        self.log = self.tasks.log
        self.settings = PhoneSettings()
        self.properties = phone_settings.properties(self.serialno)
        self.power = Power()
        self.battery = Battery()
        self.geometry = ScreenGeometry(size, self.settings)
        self.network = PhoneNetwork()
        self.hands = InputHandler(self)
        self.ticker = Ticker(self)
        self.dialog: Dialog | None = None
        self.seen_commands = CommandHistory()
        self.snapshots: dict[str, dict[str, Any]] = {}
        """Snapshots stored on the phone, by name."""
        self.on_power: Callable[[str, float], None] = lambda what, seconds: None
        """Called with `offline` or `reboot` and a duration in seconds; the server acts on it."""
        self.staged: ApkManifest | None = None
        """Manifest of an APK whose installation is in progress."""
        self._jobs: set[asyncio.Task[None]] = set()
        self.faults = Faults(random.Random(f"faults/{seed}/{number}"), self._on_fault)
        self.display = PhoneDisplay(self, effect_delay_ms, random.Random(f"{seed}/{number}"))
        self.tasks.on_fresh, self.tasks.on_change = self._on_fresh, self._on_change
        self.stale: VisibleState | None = None
        """What captures still see, if the `capture` fault is `stale`."""

    @property
    def shown(self) -> VisibleState:
        """What is visible now."""
        return self.display.shown

    @property
    def captured(self) -> VisibleState:
        """What a capture sees: what is visible, or was visible when captures went stale."""
        return self.shown if self.stale is None else self.stale

    @property
    def is_hidden(self) -> bool:
        """Whether the app in front can neither be seen nor touched."""
        return self.power.locked or not self.power.awake

    @property
    def focus(self) -> str | None:
        """Title of the window that receives touches, if any."""
        if self.power.locked:
            return "NotificationShade"
        if not self.power.awake:
            return None
        return self.tasks.component if self.dialog is None else self.dialog.title

    def in_background(self, job: Coroutine[None, None, None]) -> None:
        """Run a coroutine in the background of the phone."""
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    def put_setting(self, namespace: str, key: str, value: str) -> None:
        """Change a setting and what depends on it.

        Raises:
            ValueError: it cannot be stored.
        """
        self.settings.put(namespace, key, value)
        if key in _ROTATION_SETTINGS:
            self.display.at_once()

    def wake(self) -> None:
        """Switch the screen on."""
        self.power.wake()
        self.display.at_once()

    def sleep(self) -> None:
        """Switch the screen off."""
        self.power.sleep()
        self.display.at_once()

    def unlock(self) -> None:
        """Dismiss the lock screen."""
        self.power.unlock()
        self.display.at_once()

    def show_dialog(self, kind: Kind) -> None:
        """Show a dialog about the app in front."""
        self.dialog = Dialog(kind=kind, package=self.tasks.front or LAUNCHER)
        self.log.add("ActivityManager", self.dialog.text, "E")
        if kind == "crash":
            self.tasks.crash(self.dialog.package)
        self.display.at_once()

    def end_dialog(self, outcome: Outcome = "keep") -> None:
        """Dismiss the dialog, because a button was pressed or the fault ended."""
        dialog, self.dialog = self.dialog, None
        self.faults.forget("dialog")
        if dialog is not None and outcome == "close":
            self.tasks.stop(dialog.package)
        self.display.at_once()

    def restart(self) -> None:
        """Reset everything that does not survive a reboot."""
        for key in [key for key in self.properties if key.startswith("debug.")]:
            del self.properties[key]
        self.dialog = None
        self.power.awake, self.power.locked = True, False
        self.battery.reset()
        self.faults.clear()
        self.tasks.end_all()
        for job in self._jobs:
            job.cancel()
        self.log.add("boot", "the phone has started")
        self.display.at_once()

    def snapshot(self) -> dict[str, Any]:
        """The complete state, as JSON-compatible values."""
        return snapshot.take(self)

    def restore(self, state: object) -> None:
        """Restore a snapshot of this phone or of another one with the same apps.

        Raises:
            ValueError: it is not a valid snapshot; the phone is unchanged.
        """
        snapshot.restore(self, state)

    def _on_fresh(self, package: str) -> None:
        """Dismiss dialogs about an app whose process has ended or restarted."""
        dialog = self.dialog
        if dialog is not None and dialog.kind != "call" and dialog.package == package:
            self.dialog = None
            self.faults.forget("dialog")

    def _on_change(self) -> None:
        if self.faults.get("front").partition("/")[0] != self.tasks.front:
            self.faults.forget("front")  # the user has left it
        self.display.later()

    def _on_fault(self, name: str, old: str, value: str) -> None:
        fault_effects.strike(self, name, old, value)
