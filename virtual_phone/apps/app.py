"""The protocol of apps: pure, seeded state machines that render themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from virtual_phone.types import Image

STATE_FOLDER = "/data/local/tmp/agentrl"


def state_path(package: str) -> str:
    """The file on the phone in which an app's state is published, as one JSON object.

    The phone adds `touches` (touches and keys handled while the app was in front, with or without
    effect) and `launches` to the result of `App.state`.
    """
    return f"{STATE_FOLDER}/{package}.json"


@dataclass(slots=True, kw_only=True, frozen=True)
class View:
    """One node of an app's view hierarchy, as written by `uiautomator dump`."""

    bounds: tuple[float, float, float, float]
    """Left, top, right and bottom, each in [0, 1] of the app's area."""
    text: str = ""
    description: str = ""
    """Content description for screen readers."""
    id: str = ""
    """Resource id without the package, such as `button`."""
    kind: str = "android.view.View"
    """Class name: `android.widget.Button`, `android.widget.TextView`."""
    is_clickable: bool = False
    is_enabled: bool = True
    is_checked: bool | None = None
    """Whether the view is checked; None if it cannot be."""
    children: Sequence["View"] = field(default=())


class App(Protocol):
    """An app on a virtual phone.

    The phone owns time: it calls `touch` and `key` when the finger comes down, and shows the
    change after the phone's effect delay. The same calls must always produce the same images: a
    phone is saved as the list of calls, and restored by repeating them.

    Time passes in an app only if it has a `tick_ms: int` greater than 0. While the app is in front
    and visible, the phone then calls `tick(ms: int) -> bool` with the milliseconds that have
    passed, a multiple of `tick_ms`; it returns True if the state changed. Ticks are recorded and
    replayed like touches, so `tick(a)` followed by `tick(b)` must equal `tick(a + b)`. They are not
    counted as touches.

    An app with several activities lists them in `activities: Sequence[str]`. Each can be started;
    the extras say which one is meant, and `activity` is the one shown now.

    An app that opens addresses lists their schemes in `schemes: Sequence[str]`, such as `("http",
    "https")`. `am start -a android.intent.action.VIEW -d ADDRESS` then launches it with the address
    as the extra `data`.

    Three more methods are optional: `text(text: str) -> bool` receives typed text,
    `clear_text() -> bool` deletes it, and `views() -> Sequence[View]` describes the screen for
    `uiautomator dump`.
    """

    package: str

    @property
    def activity(self) -> str:
        """The activity it is started as; a plain attribute is enough."""

    def launch(self, extras: Mapping[str, str]) -> None:
        """Start from the initial state, as `am start -n package/activity --es key value ...` does.

        Raises:
            ValueError: an extra that the app does not accept.
        """

    def touch(self, x: float, y: float) -> bool:
        """Tap (x, y), each in [0, 1] of the app's area; returns True if the state changed."""

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> bool:
        """Swipe from (x1, y1) to (x2, y2), in [0, 1]; returns True if the state changed."""

    def key(self, code: str) -> bool:
        """Press a key such as `KEYCODE_BACK`; returns True if the app used it."""

    def render(self, width: int, height: int) -> Image:
        """Render the app's area, uint8[height, width, 3]; a pure function of the state.

        Frames keep the array: do not draw into one that has been returned.
        """

    def state(self) -> Mapping[str, Any]:
        """The true state as plain JSON values; the phone publishes it for the shell to read."""
