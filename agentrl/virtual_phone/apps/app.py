"""What a game must be to appear on a phone: a pure, seeded state machine that draws itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentrl.types import Image

STATE_FOLDER = "/data/local/tmp/agentrl"


def state_path(package: str) -> str:
    """The file on the phone that an app's state is published in, as one JSON object.

    The phone adds `touches` (touches and keys handled while the app was in front, whether they
    had an effect or not) and `launches` to what `App.state` gives.
    """
    return f"{STATE_FOLDER}/{package}.json"


@dataclass(slots=True, kw_only=True, frozen=True)
class View:
    """One node of what an app tells of its screen; `uiautomator dump` writes it."""

    bounds: tuple[float, float, float, float]
    """Left, top, right and bottom, each in [0, 1] of the app's area."""
    text: str = ""
    description: str = ""
    """What is read aloud for it."""
    id: str = ""
    """Such as `button`; the package goes before it."""
    kind: str = "android.view.View"
    """The class: `android.widget.Button`, `android.widget.TextView`."""
    is_clickable: bool = False
    is_enabled: bool = True
    is_checked: bool | None = None
    """None where there is nothing to check."""
    children: Sequence["View"] = field(default=())


class App(Protocol):
    """One app on a phone.

    The phone owns time: it calls `touch` and `key` when the finger comes down, and shows the
    change after the delay of that phone. The same calls give the same pictures, always: a phone
    is saved by the calls that were made, and restored by making them again.

    Time passes in it only where it says so: while its `tick_ms: int` is more than 0, the phone
    calls `tick(ms: int) -> bool` with the milliseconds that have passed, whole multiples of
    `tick_ms`, as long as the app is in front and to be seen; True if the state changed. Ticks are
    inputs like touches: they are kept, and made again, so that the pictures repeat where the ticks
    do. `tick(a)` and then `tick(b)` must be `tick(a + b)`. They are not counted as touches.

    An app of several activities names them in `activities: Sequence[str]`: it can be started as
    each of them, is told by its extras which is meant, and has in `activity` what it shows now.

    Three more methods are there for those who have a use for them: `text(text: str) -> bool`
    gets what is typed, `clear_text() -> bool` takes it away, and `views() -> Sequence[View]`
    tells what is on the screen, for `uiautomator dump`.
    """

    package: str

    @property
    def activity(self) -> str:
        """What it is started as; a plain attribute will do."""

    def launch(self, extras: Mapping[str, str]) -> None:
        """Start afresh, as `am start -n package/activity --es key value ...` does.

        Raises:
            ValueError: an extra that the app cannot take.
        """

    def touch(self, x: float, y: float) -> bool:
        """A tap at (x, y), each in [0, 1] of the app's area; True if the state changed."""

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> bool:
        """A swipe from (x1, y1) to (x2, y2), in [0, 1]; True if the state changed."""

    def key(self, code: str) -> bool:
        """A key such as `KEYCODE_BACK`; True if the app used it."""

    def render(self, width: int, height: int) -> Image:
        """The app's area as uint8[height, width, 3]; a pure function of the state."""

    def state(self) -> Mapping[str, Any]:
        """The truth as plain JSON values; the phone writes it where a shell can read it."""
