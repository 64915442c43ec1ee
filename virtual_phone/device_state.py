"""The state of a virtual phone, without its display, input and connections."""

import random
from collections.abc import Callable, Sequence

from virtual_phone.apps.apk import build_apk
from virtual_phone.apps.app import App
from virtual_phone.apps.app_manager import AppManager
from virtual_phone.apps.dialogs import Dialog, Kind, Outcome
from virtual_phone.apps.system_packages import (
    ACTIVITIES,
    KEYBOARD_PACKAGE,
    LAUNCHER,
    PACKAGES,
    apk_path,
)
from virtual_phone.faults.faults import Faults
from virtual_phone.phones_spec import Tempo
from virtual_phone.system import phone_settings
from virtual_phone.system.file_system import FileSystem
from virtual_phone.system.input_devices import InputDrivers
from virtual_phone.system.kernel_files import kernel_files
from virtual_phone.system.phone_settings import PhoneSettings
from virtual_phone.system.power import Battery, Power
from virtual_phone.system.screen_geometry import ScreenGeometry

_ROTATION_SETTINGS = ("accelerometer_rotation", "user_rotation")


class DeviceState:
    """State of a phone: drawn by its display, changed by its input and commands."""

    def __init__(
        self,
        apps: Sequence[App],
        size: tuple[int, int],
        seed: int,
        tempo: Tempo,
        serialno: str,
        faults: Faults,
    ) -> None:
        self.seed = seed
        self.tempo = tempo
        self.serialno = serialno
        self.faults = faults
        self.tasks = AppManager(apps, seed)
        self.clock = self.tasks.clock
        made = kernel_files(self.clock, random.Random(f"kernel/{seed}"))
        self.files = FileSystem({**made, **_apk_files(apps)})
        self.tasks.on_process_change = self._on_process_change
        self.log = self.tasks.log
        self.settings = PhoneSettings(serialno)
        self.properties = phone_settings.properties(serialno)
        self.power = Power()
        self.battery = Battery()
        self.geometry = ScreenGeometry(size, self.settings)
        self.drivers = InputDrivers(self.geometry)
        self.dialog: Dialog | None = None
        self.show_now: Callable[[], None] = lambda: None
        """Called after a change that is visible immediately."""

    @property
    def is_hidden(self) -> bool:
        """Whether the app in front can be neither seen nor touched."""
        return self.power.locked or not self.power.awake

    @property
    def focus(self) -> str | None:
        """Title of the window that receives touches, if any."""
        if self.power.locked:
            return "NotificationShade"
        if not self.power.awake:
            return None
        return self.tasks.component if self.dialog is None else self.dialog.title

    def put_setting(self, namespace: str, key: str, value: str) -> None:
        """Change a setting and everything that depends on it."""
        self.settings.put(namespace, key, value)
        if key in _ROTATION_SETTINGS:
            self.show_now()

    def reset_settings(self, namespace: str) -> None:
        """Reset a namespace to the settings of a new phone."""
        self.settings.reset(namespace)
        self.show_now()

    def wake(self) -> None:
        """Switch the screen on."""
        self.power.wake()
        self.show_now()

    def sleep(self) -> None:
        """Switch the screen off."""
        self.power.sleep()
        self.show_now()

    def unlock(self) -> None:
        """Dismiss the lock screen."""
        self.power.unlock()
        self.show_now()

    def show_dialog(self, kind: Kind) -> None:
        """Show a dialog about the app in front."""
        self.dialog = Dialog(kind=kind, package=self.tasks.front or LAUNCHER)
        self.log.add("ActivityManager", self.dialog.text, "E")
        if kind == "crash":
            self.tasks.crash(self.dialog.package)
        self.show_now()

    def end_dialog(self, outcome: Outcome = "keep") -> None:
        """Dismiss the dialog when a button is pressed or the fault ends."""
        dialog, self.dialog = self.dialog, None
        self.faults.forget("dialog")
        if dialog is not None and outcome == "close":
            self.tasks.stop(dialog.package)
        self.show_now()

    def _on_process_change(self, package: str) -> None:
        """Dismiss dialogs about an app whose process has ended or restarted."""
        dialog = self.dialog
        if dialog is not None and dialog.kind != "call" and dialog.package == package:
            self.dialog = None
            self.faults.forget("dialog")


def _apk_files(apps: Sequence[App]) -> dict[str, Callable[[int], bytes]]:
    """Return the APKs of the apps on a new phone, by path."""
    activities = dict.fromkeys((*PACKAGES, KEYBOARD_PACKAGE), ".Main")
    activities |= ACTIVITIES | {app.package: app.activity for app in apps}

    def maker(package: str, activity: str) -> Callable[[int], bytes]:
        return lambda size: build_apk(package, activity)

    return {apk_path(package): maker(package, name) for package, name in activities.items()}
