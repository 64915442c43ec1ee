"""Runs an app, counting its touches and surviving its crashes."""

import json
import logging
from collections.abc import Callable, Mapping

import numpy as np

from agentrl.types import Image
from virtual_phone.apps.app import App

log = logging.getLogger(__name__)


class AppSession:
    """Calls an app and counts its touches like a virtual phone (`virtual_phone`).

    Every touch, swipe, key and text that reaches a running app counts, with or without effect. An
    app that raises is stopped, as on a phone.
    """

    def __init__(self, app: App) -> None:
        self.app = app
        self.running = False
        """Whether it was launched, and has neither stopped nor crashed since."""
        self._touches = self._launches = 0

    def launch(self, extras: Mapping[str, str]) -> None:
        """(Re)start the app; ValueError for an extra that it does not accept."""
        self.app.launch(extras)
        self._launches += 1
        self.running = True

    def touch(self, x: float, y: float) -> bool:
        """A tap at (x, y) of the app's area; True if it had an effect, which outside it has not."""
        return self._consume(lambda app: _inside(x, y) and app.touch(x, y))

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> bool:
        """A swipe that starts at (x1, y1) and ends at (x2, y2), or at the area's edge."""
        end = min(max(x2, 0.0), 1.0), min(max(y2, 0.0), 1.0)
        return self._consume(lambda app: _inside(x1, y1) and app.swipe(x1, y1, *end, duration_ms))

    def key(self, code: str) -> bool:
        """A key such as `KEYCODE_BACK`; HOME never reaches the app."""
        return self._consume(lambda app: code != "KEYCODE_HOME" and app.key(code))

    def text(self, text: str) -> bool:
        """Typed text, for an app with a `text` method."""
        return self._consume(lambda app: bool(getattr(app, "text", lambda _: False)(text)))

    def miss(self) -> bool:
        """Count a touch outside the app, which has no effect."""
        return self._consume(lambda app: False)

    def tick(self, ms: int) -> bool:
        """Advance the app's clock, which does not count as a touch; True if it had an effect."""
        if not self.running:
            return False
        try:
            return bool(getattr(self.app, "tick", lambda _: False)(ms))
        except Exception:
            self._crash()
            return True

    def tick_ms(self) -> int:
        """Interval of the app's clock; 0 if it has none."""
        return int(getattr(self.app, "tick_ms", 0)) if self.running else 0

    def published(self) -> str | None:
        """Return the app's state as JSON, with `touches` and `launches`; None if not running."""
        if not self.running:
            return None
        counts = {"touches": self._touches, "launches": self._launches}
        try:
            state = {**counts, **self.app.state()}
            # Numbers of NumPy are written as Python's.
            return json.dumps(state, ensure_ascii=False, default=np.generic.item)
        except Exception:
            self._crash()
            return None

    def render(self, width: int, height: int) -> Image | None:
        """Draw the app as uint8[height, width, 3]; None if it is not running."""
        if not self.running:
            return None
        try:
            picture = self.app.render(width, height)
            if picture.shape != (height, width, 3) or picture.dtype != np.uint8:
                raise ValueError(f"render returned {picture.dtype}{list(picture.shape)}")
        except Exception:
            self._crash()
            return None
        return picture

    def _consume(self, act: Callable[[App], bool]) -> bool:
        if not self.running:
            return False
        self._touches += 1
        try:
            return bool(act(self.app))
        except Exception:
            self._crash()
            return True

    def _crash(self) -> None:
        # As on a phone, the app is gone and everything else goes on.
        log.exception("%s crashed", self.app.package)
        self.running = False


def _inside(x: float, y: float) -> bool:
    return 0 <= x <= 1 and 0 <= y <= 1
