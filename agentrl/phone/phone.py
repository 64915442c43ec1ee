"""A virtual phone: its apps, what is in front, and what its screen shows when."""

import asyncio
import hashlib
import json
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agentrl.phone import screen
from agentrl.phone.app import STATE_FOLDER, App, state_path
from agentrl.phone.files import Files
from agentrl.phone.screen import Frame
from agentrl.types import Image

log = logging.getLogger(__name__)

LAUNCHER = "org.agentrl.launcher"
LAUNCHER_ACTIVITY = ".Home"
_SECONDS_PER_TOUCH = 5


@dataclass(slots=True, kw_only=True)
class Installed:
    """An app on the phone and what it has been through."""

    app: App
    touches: int = 0
    """Touches and keys handled while the app was in front, with or without effect."""
    launches: int = 0
    clock_s: int = 0
    """The time that the status bar shows: seeded by the launch, moved by touches alone."""
    area: Image | None = None
    """The picture of the app's state; None when the state has changed since it was drawn."""
    drawings: int = 0
    """How often it was drawn: tells one picture from the next."""

    def published(self) -> bytes:
        """The state as a shell reads it."""
        state = {"touches": self.touches, "launches": self.launches, **self.app.state()}
        return json.dumps(state, ensure_ascii=False).encode()


@dataclass(slots=True, kw_only=True, frozen=True)
class Shown:
    """Everything that becomes visible together."""

    front: str | None
    """Package in front; None for the home screen."""
    frame: Frame
    states: Mapping[str, bytes] = field(default_factory=dict)
    """Published state of every app that runs."""


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
            number: of this phone among others of that seed; they differ in their delays only.
            serialno: as `getprop ro.serialno` tells.
        """
        self.size = size
        self.effect_delay_ms = effect_delay_ms
        self.seed = seed
        self.serialno = serialno or f"VIRTUAL{seed:04d}{number:03d}"
        self.files = Files()
        self.files.make_folders(STATE_FOLDER)
        self.apps = {app.package: Installed(app=app) for app in apps}
        self.settings: dict[tuple[str, str], str] = {}
        self.properties = self._properties()
        self.log_lines: deque[str] = deque(maxlen=1000)
        self.seen_commands: deque[tuple[str, ...]] = deque(maxlen=1000)
        """The last commands that its shell ran, as they came: newest last."""
        self.on_power: Callable[[str], None] = lambda what: None
        """Called with `offline` or `reboot`; the host acts on the connections."""
        self._front: str | None = None
        self._running: set[str] = set()
        self._random = random.Random(f"{seed}/{number}")
        self._home_clock_s = self._clock_seed("home", {})
        self._pending: deque[Shown] = deque()
        self._last_due_s = 0.0
        self._frame_key: tuple[object, ...] = ()
        self.shown = self._now()

    @property
    def app_height(self) -> int:
        """Height of the area below the status bar, in pixels."""
        return self.size[1] - screen.bar_height(self.size[1])

    def launch(self, package: str, extras: Mapping[str, str]) -> None:
        """Start an app afresh.

        Raises:
            KeyError: it is not installed.
            ValueError: an extra that it does not take.
        """
        installed = self.apps[package]
        installed.app.launch(extras)
        installed.launches += 1
        installed.area = None
        installed.clock_s = self._clock_seed(package, extras)
        self._running.add(package)
        self._front = package
        self.note("ActivityTaskManager", f"START u0 {package}/{installed.app.activity}")
        self._show_later()

    def stop(self, package: str) -> None:
        """Stop an app; its published state goes with it."""
        self._running.discard(package)
        if self._front == package:
            self._front = None
        self._show_later()

    def touch(self, px: float, py: float) -> None:
        """A tap at a pixel of the screen."""
        x, y = self._in_area(px, py)
        if y < 0:
            self._consume(lambda app: False)
        elif self._front is None:
            tile = screen.tile_at(x, y, len(self.apps))
            if tile is not None:
                self.launch(list(self.apps)[tile], {})
        else:
            self._consume(lambda app: app.touch(x, y))

    def swipe(self, start: tuple[float, float], end: tuple[float, float], ms: int) -> None:
        """A swipe between two pixels of the screen."""
        (x1, y1), (x2, y2) = self._in_area(*start), self._in_area(*end)
        if min(y1, y2) < 0:
            self._consume(lambda app: False)
        else:
            self._consume(lambda app: app.swipe(x1, y1, x2, y2, ms))

    def key(self, code: str) -> None:
        """A key such as `KEYCODE_BACK`; what the app does not use, the phone does."""
        used = False

        def press(app: App) -> bool:
            nonlocal used
            used = code != "KEYCODE_HOME" and app.key(code)
            return used

        leaves = code in ("KEYCODE_HOME", "KEYCODE_BACK")
        self._consume(press, then=lambda: self._leave() if leaves and not used else None)

    def text(self, text: str) -> None:
        """Typed text, for an app with a `text` method."""
        self._consume(lambda app: bool(getattr(app, "text", lambda _: False)(text)))

    async def wait_until_shown(self) -> None:
        """Wait until every change so far is visible."""
        loop = asyncio.get_running_loop()
        while self._pending:
            await asyncio.sleep(max(0.0, self._last_due_s - loop.time()))

    def note(self, tag: str, text: str) -> None:
        """Write a line to the log that `logcat` shows."""
        self.log_lines.append(f"I/{tag}( 1000): {text}")

    def _leave(self) -> None:
        self._front = None

    def _in_area(self, px: float, py: float) -> tuple[float, float]:
        """A pixel in [0, 1] of the app's area; y is negative in the status bar."""
        width, height = self.size
        x = (min(max(px, 0), width - 1) + 0.5) / width
        y = (min(py, height - 1) - (height - self.app_height) + 0.5) / self.app_height
        return x, y

    def _consume(self, act: Callable[[App], bool], then: Callable[[], None] = lambda: None) -> None:
        """Let the app in front have a touch or key, and show what came of it."""
        if self._front is None:
            return
        installed = self.apps[self._front]
        installed.touches += 1
        installed.clock_s += _SECONDS_PER_TOUCH
        try:
            if act(installed.app):
                installed.area = None
        except Exception:
            # As on a phone: an app that raises is gone from the screen, the phone goes on.
            log.exception("%s crashed", self._front)
            self.note("AndroidRuntime", f"FATAL EXCEPTION: {self._front}")
            self._running.discard(self._front)
            self._front = None
        then()
        self._show_later()

    def _show_later(self) -> None:
        """Show the phone as it is now, when the delay of this effect has passed."""
        shown = self._now()
        delay_s = self._random.uniform(*self.effect_delay_ms) / 1000
        if not delay_s and not self._pending:
            self._show(shown)
            return
        loop = asyncio.get_running_loop()
        self._last_due_s = max(self._last_due_s, loop.time() + delay_s)
        self._pending.append(shown)
        loop.call_at(self._last_due_s, lambda: self._show(self._pending.popleft()))

    def _show(self, shown: Shown) -> None:
        for package in self.shown.states.keys() - shown.states.keys():
            self.files.remove(state_path(package))
        self.shown = shown
        late_s = float(self.properties.get("debug.agentrl.publish_late_s") or 0)
        if late_s:
            asyncio.get_running_loop().call_later(late_s, self._publish, shown)
        else:
            self._publish(shown)

    def _publish(self, shown: Shown) -> None:
        for package, state in shown.states.items():
            self.files.write(state_path(package), state)

    def _now(self) -> Shown:
        """The phone as it is, drawn where something has changed."""
        states = {name: self.apps[name].published() for name in sorted(self._running)}
        return Shown(front=self._front, frame=self._draw(), states=states)

    def _draw(self) -> Frame:
        width, height = self.size
        clock, drawings, area = self._home_clock_s, 0, None
        if self._front is not None:
            installed = self.apps[self._front]
            if installed.area is None:
                installed.area = installed.app.render(width, self.app_height)
                installed.drawings += 1
            clock, drawings, area = installed.clock_s, installed.drawings, installed.area
        time = f"{clock // 3600 % 24:02d}:{clock // 60 % 60:02d}"
        key = (self._front, time, drawings)
        if key != self._frame_key:
            if area is None:
                names = [name.rpartition(".")[2] for name in self.apps]
                area = screen.home(width, self.app_height, names)
            self._drawn = screen.compose(area, width, height, time)
            self._frame_key = key
        return self._drawn

    def _clock_seed(self, what: str, extras: Mapping[str, str]) -> int:
        """A time of day in seconds, the same for the same launch on every phone of this seed."""
        told = json.dumps([self.seed, what, sorted(extras.items())])
        return int.from_bytes(hashlib.sha256(told.encode()).digest()[:4], "big") % 86_400

    def _properties(self) -> dict[str, str]:
        return {
            "ro.product.model": "Virtual Phone",
            "ro.product.name": "virtual",
            "ro.product.device": "virtual",
            "ro.product.brand": "agentrl",
            "ro.product.manufacturer": "agentrl",
            "ro.product.cpu.abi": "x86_64",
            "ro.build.version.release": "14",
            "ro.build.version.sdk": "34",
            "ro.serialno": self.serialno,
            "ro.boot.serialno": self.serialno,
            "sys.boot_completed": "1",
        }
