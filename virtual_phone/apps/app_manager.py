"""A phone's apps: which are installed, which are running, and which is in front."""

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import count

from virtual_phone.apps.app import App, LiveApp
from virtual_phone.apps.installed_app import Input, InstalledApp, component_name
from virtual_phone.apps.system_packages import LAUNCHER, LAUNCHER_ACTIVITY
from virtual_phone.apps.text_page_app import TextPage
from virtual_phone.system.device_clock import DeviceClock
from virtual_phone.system.device_log import DeviceLog
from virtual_phone.system.file_system import EPOCH_S

log = logging.getLogger(__name__)

MIDNIGHT_S = EPOCH_S - EPOCH_S % 86_400
"""Midnight of the day on which every phone starts, in seconds since 1970."""
_FIRST_PID = 4000
_MAX_PAGES = 200
HOME = component_name(LAUNCHER, LAUNCHER_ACTIVITY)


class AppManager:
    """Installed and running apps of one phone, and its stack of activities."""

    def __init__(self, apps: Sequence[App], seed: int) -> None:
        self.apps = {app.package: InstalledApp(app=app) for app in apps}
        self.pages: dict[str, InstalledApp] = {}
        """Pages shown for packages that are not installed, by package."""
        self.disabled: set[str] = set()
        """Packages that cannot be started (`pm disable-user`)."""
        self.running: set[str] = set()
        self.crashed: set[str] = set()
        """Crashed packages; their last published state remains readable."""
        self.stack: list[str] = []
        """Packages from bottom to top: BACK leaves the last, which is in front."""
        self.pinned: str | None = None
        """Package whose task HOME and BACK cannot leave, if any (`am task lock`)."""
        self.home_clock_s = _time_of_day(seed, "home", {})
        self.clock = DeviceClock(MIDNIGHT_S + self.home_clock_s)
        self.log = DeviceLog(self.clock.now_s)
        self.on_change: Callable[[], None] = lambda: None
        """Called when the visible state may have changed."""
        self.on_process_change: Callable[[str], None] = lambda package: None
        """Called with a package whose process has ended or restarted."""
        self._seed = seed
        self._pids: dict[str, int] = {}
        self._next_pid = count(_FIRST_PID)

    @property
    def front(self) -> str | None:
        """Package in front, even if not visible yet; None for the home screen."""
        return self.stack[-1] if self.stack else None

    @property
    def installed(self) -> InstalledApp | None:
        """App or page in front; None for the home screen."""
        return None if self.front is None else self.find(self.front)

    @property
    def component(self) -> str:
        """Component in front, as `package/activity`."""
        return HOME if self.installed is None else self.installed.component

    @property
    def components(self) -> list[str]:
        """`package/activity` of every task, from the home screen to the task in front."""
        found = [self.find(package) for package in self.stack]
        return [HOME, *(task.component for task in found if task is not None)]

    @property
    def clock_s(self) -> int:
        """Time of day shown in the status bar, in seconds."""
        return self.home_clock_s if self.installed is None else self.installed.clock_s

    def find(self, package: str) -> InstalledApp | None:
        """Return the app or page of a package, if any."""
        return self.apps.get(package) or self.pages.get(package)

    def pid(self, package: str) -> int:
        """Return the process id of a package, which is stable until the process ends."""
        if package not in self._pids:
            self._pids[package] = next(self._next_pid)
        return self._pids[package]

    def launch(self, package: str, extras: Mapping[str, str]) -> None:
        """Start an app from its initial state and bring it to the front."""
        installed = self.find(package)
        if installed is None:
            raise KeyError(package)
        installed.launch(extras, _time_of_day(self._seed, package, extras))
        self.crashed.discard(package)
        if package in self.apps:
            self.running.add(package)
        self.log.add("ActivityTaskManager", f"START u0 {installed.component}")
        self.on_process_change(package)
        self._to_front(package)

    def reopen(self, package: str, component: str = "") -> bool:
        """Bring an app's task to the front as it was left; return False if it has no task."""
        if package not in self.running and package not in self.pages:
            return False
        task = self.find(package)
        if task is None or component not in ("", task.component):
            return False
        self._to_front(package)
        return True

    def bring_to_front(self, package: str, activity: str | None = None, *, text: str = "") -> None:
        """Bring any package to the front; show a page for a package that is not installed.

        With `text`, the page is always a new one.
        """
        if package == LAUNCHER:
            self.go_home()
        elif package in self.apps:
            if not self.reopen(package):
                self.launch(package, {})
        elif text or not self.reopen(
            package, component_name(package, activity) if activity else ""
        ):
            self._make_page(package, activity)
            self.launch(package, {"text": text})

    def end_process(self, package: str) -> None:
        """End an app's process; its next process gets a new id."""
        self.running.discard(package)
        self._pids.pop(package, None)
        installed = self.apps.get(package)
        if installed is not None and isinstance(installed.app, LiveApp):
            installed.app.close()

    def stop(self, package: str) -> None:
        """Stop an app and remove its published state."""
        self.end_process(package)
        self.pages.pop(package, None)
        self.crashed.discard(package)
        if package in self.stack:
            self.stack.remove(package)
        self.on_process_change(package)
        self.on_change()

    def back(self) -> None:
        """Leave the app in front for the app below it, unless it is pinned."""
        if self.pinned == self.front:
            return
        self.stack.pop()
        self.on_change()

    def go_home(self) -> None:
        """Show the home screen, unless an app is pinned."""
        if self.pinned not in self.stack:
            self.stack.clear()
        self.on_change()

    def feed(self, event: Input, package: str | None) -> bool:
        """Pass an input to an app; return whether the app handled it."""
        installed = self.find(package) if package in self.running or package in self.pages else None
        if installed is None:
            return False
        try:
            return installed.feed(event)
        except Exception:
            # As on a real phone, a crashing app disappears and the phone keeps running.
            log.exception("%s crashed", installed.app.package)
            with contextlib.suppress(ValueError):  # the history may be too long to replay
                installed.replay()  # return to the published state
            self.crash(installed.app.package)
            return False

    def crash(self, package: str) -> None:
        """End an app with an error; its published state remains."""
        self.log.add("AndroidRuntime", f"FATAL EXCEPTION: {package}", "E", self.pid(package))
        if package in self.running:
            self.end_process(package)
            self.crashed.add(package)
        if package in self.stack:
            self.stack.remove(package)

    def install(self, installed: InstalledApp) -> None:
        """Install an app, replacing any older version."""
        package = installed.app.package
        self.end_process(package)
        self.apps.pop(package, None)
        self.apps[package] = installed
        self.stop(package)

    def uninstall(self, package: str) -> bool:
        """Uninstall an app; return whether it was installed."""
        if package not in self.apps:
            return False
        self.end_process(package)
        del self.apps[package]
        self.disabled.discard(package)
        self.stop(package)
        return True

    def end_all(self) -> None:
        """Stop everything, as a reboot does."""
        for package in [*self.running]:
            self.end_process(package)
        self.crashed.clear()
        self.stack.clear()
        self.pages.clear()
        self._pids.clear()
        self.pinned = None

    def _make_page(self, package: str, activity: str | None) -> None:
        if len(self.pages) >= _MAX_PAGES:
            self.pages = {name: self.pages[name] for name in self.stack if name in self.pages}
        self.pages[package] = InstalledApp(app=TextPage(package, activity))

    def _to_front(self, package: str) -> None:
        if package in self.stack:
            self.stack.remove(package)
        self.stack.append(package)
        self.on_change()


def _time_of_day(seed: int, what: str, extras: Mapping[str, str]) -> int:
    """Return a time of day in seconds that depends only on the seed and the launch."""
    # The same page may be served at another port, which its URL contains.
    own = sorted((name, value) for name, value in extras.items() if name != "data")
    launch = json.dumps([seed, what, own])
    return int.from_bytes(hashlib.sha256(launch.encode()).digest()[:4], "big") % 86_400
