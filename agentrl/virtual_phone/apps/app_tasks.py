"""Which apps a phone has, which run, and which is in front."""

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence

from agentrl.virtual_phone.apps.app import App
from agentrl.virtual_phone.apps.installed_app import Input, Installed, full
from agentrl.virtual_phone.apps.system_apps import LAUNCHER, LAUNCHER_ACTIVITY, Page
from agentrl.virtual_phone.system.device_log import Log
from agentrl.virtual_phone.system.file_system import EPOCH_S

log = logging.getLogger(__name__)

MIDNIGHT_S = EPOCH_S - EPOCH_S % 86_400
"""The day that it always is, in seconds since 1970."""
_FIRST_PID = 4000
_MOST_PAGES = 200
HOME = f"{LAUNCHER}/{full(LAUNCHER, LAUNCHER_ACTIVITY)}"


class Tasks:
    """The apps of one phone."""

    def __init__(self, apps: Sequence[App], seed: int) -> None:
        """Nothing runs, and the home screen is in front.

        Args:
            apps: installed.
            seed: of the clocks; the same launch has the same time on every phone of this seed.
        """
        self.apps = {app.package: Installed(app=app) for app in apps}
        self.pages: dict[str, Installed] = {}
        """Packages that came to the front and are nobody's app."""
        self.running: set[str] = set()
        self.crashed: set[str] = set()
        """Packages that have crashed; what they published last can still be read."""
        self.stack: list[str] = []
        """Packages that BACK comes by, the one in front last."""
        self.home_clock_s = _time_of_day(seed, "home", {})
        self.log = Log(lambda: MIDNIGHT_S + self.clock_s)
        self.on_change: Callable[[], None] = lambda: None
        """Called when something else is to be seen."""
        self.on_fresh: Callable[[str], None] = lambda package: None
        """Called with a package whose process has ended, or begun anew."""
        self._seed = seed
        self._pids: dict[str, int] = {}

    @property
    def front(self) -> str | None:
        """Package in front, shown or not yet; None for the home screen."""
        return self.stack[-1] if self.stack else None

    @property
    def installed(self) -> Installed | None:
        """What is in front; None for the home screen."""
        return None if self.front is None else self.find(self.front)

    @property
    def component(self) -> str:
        """`package/activity` in front."""
        return HOME if self.installed is None else self.installed.component

    @property
    def clock_s(self) -> int:
        """The time of day that the status bar shows, in seconds."""
        return self.home_clock_s if self.installed is None else self.installed.clock_s

    def find(self, package: str) -> Installed | None:
        """An app or a page by its package."""
        return self.apps.get(package) or self.pages.get(package)

    def pid(self, package: str) -> int:
        """The number of a package's process, the same as long as the phone is on."""
        return self._pids.setdefault(package, _FIRST_PID + len(self._pids))

    def launch(self, package: str, extras: Mapping[str, str]) -> None:
        """Start an app afresh, above what is in front.

        Raises:
            KeyError: it is not installed.
            ValueError: an extra that it does not take.
        """
        installed = self.find(package)
        if installed is None:
            raise KeyError(package)
        installed.launch(extras, _time_of_day(self._seed, package, extras))
        self.crashed.discard(package)
        if package in self.apps:
            self.running.add(package)
        self.log.add("ActivityTaskManager", f"START u0 {installed.component}")
        self.on_fresh(package)
        self._to_front(package)

    def bring(self, package: str, activity: str | None = None, *, text: str = "") -> None:
        """Have a package in front, whatever it is; one that is no app is a page of its name.

        Args:
            package: to come to the front.
            activity: of a page.
            text: that a page shows.
        """
        if package == LAUNCHER:
            self.go_home()
        elif package in self.running:
            self._to_front(package)
        else:
            if package not in self.apps:
                self._make_page(package, activity)
            self.launch(package, {} if package in self.apps else {"text": text})

    def stop(self, package: str) -> None:
        """Stop an app; its published state goes with it."""
        self.running.discard(package)
        self.crashed.discard(package)
        if package in self.stack:
            self.stack.remove(package)
        self.on_fresh(package)
        self.on_change()

    def back(self) -> None:
        """Leave what is in front for what is below it."""
        self.stack.pop()
        self.on_change()

    def go_home(self) -> None:
        """Leave everything that is in front."""
        self.stack.clear()
        self.on_change()

    def feed(self, event: Input, package: str | None) -> bool:
        """Let an app have a touch, a key or text; whether it used it.

        Args:
            event: what it has.
            package: of the app; one that does not run has no use for it.
        """
        installed = self.find(package) if package in self.running or package in self.pages else None
        if installed is None:
            return False
        try:
            return installed.feed(event)
        except Exception:
            # As on a phone: an app that raises is gone from the screen, the phone goes on.
            log.exception("%s crashed", installed.app.package)
            with contextlib.suppress(ValueError):  # after so many inputs nobody plays it again
                installed.replay()  # what it has published is from before
            self.crash(installed.app.package)
            return False

    def crash(self, package: str) -> None:
        """An app ends by a fault of its own, and has no time to remove what it has published."""
        self.log.add("AndroidRuntime", f"FATAL EXCEPTION: {package}", "E", self.pid(package))
        if package in self.running:
            self.running.remove(package)
            self.crashed.add(package)
        if package in self.stack:
            self.stack.remove(package)

    def install(self, installed: Installed) -> None:
        """Add an app, or put a newer one in its place."""
        package = installed.app.package
        self.apps.pop(package, None)
        self.apps[package] = installed
        self.stop(package)

    def uninstall(self, package: str) -> bool:
        """Remove an app; whether there was one."""
        if self.apps.pop(package, None) is None:
            return False
        self.stop(package)
        return True

    def end_all(self) -> None:
        """Nothing runs any more, as after a restart of the phone."""
        self.running.clear()
        self.crashed.clear()
        self.stack.clear()
        self.pages.clear()
        self._pids.clear()

    def _make_page(self, package: str, activity: str | None) -> None:
        if len(self.pages) >= _MOST_PAGES:
            self.pages = {name: self.pages[name] for name in self.stack if name in self.pages}
        self.pages[package] = Installed(app=Page(package, activity))

    def _to_front(self, package: str) -> None:
        if package in self.stack:
            self.stack.remove(package)
        self.stack.append(package)
        self.on_change()


def _time_of_day(seed: int, what: str, extras: Mapping[str, str]) -> int:
    """A time of day in seconds, the same for the same launch on every phone of this seed."""
    told = json.dumps([seed, what, sorted(extras.items())])
    return int.from_bytes(hashlib.sha256(told.encode()).digest()[:4], "big") % 86_400
