"""A virtual phone: what it is made of, and what happens to it."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from agentrl.virtual_phone.apps.apk import Manifest
from agentrl.virtual_phone.apps.app import App
from agentrl.virtual_phone.apps.app_tasks import Tasks
from agentrl.virtual_phone.apps.system_apps import LAUNCHER
from agentrl.virtual_phone.apps.ticker import Ticker
from agentrl.virtual_phone.faults import fault_effects
from agentrl.virtual_phone.faults.faults import Faults
from agentrl.virtual_phone.system import phone_settings, snapshot
from agentrl.virtual_phone.system.device_log import Seen
from agentrl.virtual_phone.system.dialogs import Dialog, Kind, Outcome
from agentrl.virtual_phone.system.file_system import Files
from agentrl.virtual_phone.system.input_handler import Hands
from agentrl.virtual_phone.system.network import Network
from agentrl.virtual_phone.system.phone_display import Display, Shown
from agentrl.virtual_phone.system.phone_settings import Settings
from agentrl.virtual_phone.system.power import Battery, Power
from agentrl.virtual_phone.system.screen_geometry import Geometry

_ROTATION_SETTINGS = ("accelerometer_rotation", "user_rotation")


class Phone:
    """One phone. It lives on one event loop and is not safe for threads."""

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
        """A phone that shows its home screen.

        Args:
            apps: installed on it.
            size: width and height of the screen, in pixels.
            effect_delay_ms: how much later than the touch its effect appears, at least and at
                most; (0, 0) shows it before the command ends.
            seed: of its clock; the same seed and the same touches give the same frames.
            number: of this phone among others of that seed; they differ in their delays and
                faults only.
            serialno: as `getprop ro.serialno` tells.
        """
        self.seed = seed
        self.serialno = serialno or f"VIRTUAL{seed:04d}{number:03d}"
        self.files = Files()
        self.tasks = Tasks(apps, seed)
        self.log = self.tasks.log
        self.settings = Settings()
        self.properties = phone_settings.properties(self.serialno)
        self.power = Power()
        self.battery = Battery()
        self.geometry = Geometry(size, self.settings)
        self.network = Network()
        self.hands = Hands(self)
        self.ticker = Ticker(self)
        self.dialog: Dialog | None = None
        self.seen_commands = Seen()
        self.snapshots: dict[str, dict[str, Any]] = {}
        """Those that are kept on the phone, by their names."""
        self.on_power: Callable[[str, float], None] = lambda what, seconds: None
        """Called with `offline` or `reboot` and how long; the host acts on the connections."""
        self.staged: Manifest | None = None
        """Of an APK whose installation is under way."""
        self._jobs: set[asyncio.Task[None]] = set()
        self.faults = Faults(random.Random(f"faults/{seed}/{number}"), self._on_fault)
        self.display = Display(self, effect_delay_ms, random.Random(f"{seed}/{number}"))
        self.tasks.on_fresh, self.tasks.on_change = self._on_fresh, self._on_change
        self.stale: Shown | None = None
        """What captures still see, if they have gone stale."""

    @property
    def shown(self) -> Shown:
        """What is visible now."""
        return self.display.shown

    @property
    def captured(self) -> Shown:
        """What a capture sees: what is visible, or was when captures went stale."""
        return self.shown if self.stale is None else self.stale

    @property
    def is_hidden(self) -> bool:
        """Whether what is in front can be neither seen nor touched."""
        return self.power.locked or not self.power.awake

    @property
    def focus(self) -> str | None:
        """Title of the window that gets the touches; None for none."""
        if self.power.locked:
            return "NotificationShade"
        if not self.power.awake:
            return None
        return self.tasks.component if self.dialog is None else self.dialog.title

    def in_background(self, job: Coroutine[None, None, None]) -> None:
        """Have the phone do something by the side."""
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    def put_setting(self, namespace: str, key: str, value: str) -> None:
        """Change a setting, and what depends on it.

        Raises:
            ValueError: it cannot be kept.
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
        """Put the lock screen away."""
        self.power.unlock()
        self.display.at_once()

    def show_dialog(self, kind: Kind) -> None:
        """A dialog about what is in front."""
        self.dialog = Dialog(kind=kind, package=self.tasks.front or LAUNCHER)
        self.log.add("ActivityManager", self.dialog.text, "E")
        if kind == "crash":
            self.tasks.crash(self.dialog.package)
        self.display.at_once()

    def end_dialog(self, outcome: Outcome = "keep") -> None:
        """The dialog goes away, because a button of it was pressed or by itself."""
        dialog, self.dialog = self.dialog, None
        self.faults.forget("dialog")
        if dialog is not None and outcome == "close":
            self.tasks.stop(dialog.package)
        self.display.at_once()

    def restart(self) -> None:
        """Everything that does not survive a restart is gone."""
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
        """The whole state, as JSON can hold it."""
        return snapshot.take(self)

    def restore(self, told: object) -> None:
        """Be in the state of a snapshot, of this phone or of another with the same apps.

        Raises:
            ValueError: it is none; nothing has changed then.
        """
        snapshot.restore(self, told)

    def _on_fresh(self, package: str) -> None:
        """A process has ended or begun: the dialogs about the one before it are over."""
        dialog = self.dialog
        if dialog is not None and dialog.kind != "call" and dialog.package == package:
            self.dialog = None
            self.faults.forget("dialog")

    def _on_change(self) -> None:
        if self.faults.get("front").partition("/")[0] != self.tasks.front:
            self.faults.forget("front")  # somebody has left it
        self.display.later()

    def _on_fault(self, name: str, old: str, value: str) -> None:
        fault_effects.strike(self, name, old, value)
