"""The protocol apps implement: pure, seeded state machines that render themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from virtual_phone.system.phone_network import PhoneNetwork
from virtual_phone.types import Image

STATE_FOLDER = "/data/local/tmp/agentrl"


def state_path(package: str) -> str:
    """Return the path on the phone where an app's state is published as one JSON object.

    The phone extends the result of `App.state` with `touches` (touches and keys handled while the
    app was in front, with or without effect) and `launches`.
    """
    return f"{STATE_FOLDER}/{package}.json"


@dataclass(slots=True, kw_only=True, frozen=True)
class View:
    """A node of an app's view hierarchy, as written by `uiautomator dump`."""

    bounds: tuple[float, float, float, float]
    """Left, top, right and bottom, as fractions of the app's area."""
    text: str = ""
    description: str = ""
    """Content description for screen readers."""
    id: str = ""
    """Resource id without the package, such as `button`."""
    kind: str = "android.view.View"
    """Class name, such as `android.widget.Button`."""
    is_clickable: bool = False
    is_enabled: bool = True
    is_checked: bool | None = None
    """Whether the view is checked; None if it is not checkable."""
    children: Sequence["View"] = field(default=())


class AppHost(Protocol):
    """What a phone offers to a live app."""

    network: PhoneNetwork
    """The phone's own ports."""

    @property
    def area(self) -> tuple[int, int]:
        """Width and height of the app's area, in pixels."""

    @property
    def scale(self) -> float:
        """Pixels per density-independent pixel."""

    def changed(self) -> None:
        """Show what the app draws now."""

    def handled(self) -> None:
        """Count a touch or key whose effect the app draws now, and show it."""

    def leave(self) -> None:
        """Leave the app for the one below it, as BACK does."""

    def fail(self, kind: Literal["anr", "crash"]) -> None:
        """Show the system's dialog about an app that does not respond or has crashed."""


class App(Protocol):
    """An app on a virtual phone.

    The phone controls time: it calls `touch` and `key` when the finger comes down, and shows the
    change after its own effect delay. The same calls must always produce the same images: a phone
    is saved as a list of calls and restored by repeating them.

    Time passes in an app only if it has a `tick_ms: int` greater than 0. The phone then calls
    `tick(ms: int) -> bool` while the app is in front and visible. `ms` is the number of
    milliseconds that have passed, a multiple of `tick_ms`; return True if the state changed. Ticks
    are recorded and replayed like touches, so `tick(a)` followed by `tick(b)` must equal
    `tick(a + b)`. They do not count as touches.

    An app with several activities lists them in `activities: Sequence[str]`. All of them can be
    started; the extras select the activity, and `activity` is the activity currently shown.

    An app that opens URLs lists their schemes in `schemes: Sequence[str]`, such as `("http",
    "https")`. `am start -a android.intent.action.VIEW -d URL` then launches the app with the URL as
    the extra `data`.

    An app that draws the content of another process, such as a web page, is a `LiveApp`.

    Three more methods are optional: `text(text: str) -> bool` receives typed text,
    `clear_text() -> bool` deletes it, and `views() -> Sequence[View]` describes the screen for
    `uiautomator dump`; it may be a coroutine.
    """

    package: str

    @property
    def activity(self) -> str:
        """Activity the app is started as; a plain attribute is enough."""

    def launch(self, extras: Mapping[str, str]) -> None:
        """Start from the initial state, as `am start -n package/activity --es key value ...` does.

        Raises:
            ValueError: the app does not accept one of the extras.
        """

    def touch(self, x: float, y: float) -> bool:
        """Tap (x, y), in fractions of the app's area; return True if the state changed."""

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int) -> bool:
        """Swipe from (x1, y1) to (x2, y2), in fractions; return True if the state changed."""

    def key(self, code: str) -> bool:
        """Press a key such as `KEYCODE_BACK`; return True if the app handled it."""

    def render(self, width: int, height: int) -> Image:
        """Render the app's area, uint8[height, width, 3]; a pure function of the state.

        Frames keep a reference to the returned array, so do not modify it later.
        """

    def state(self) -> Mapping[str, Any]:
        """Return the true state as plain JSON values, which the phone publishes for the shell."""


@runtime_checkable
class LiveApp(Protocol):
    """An app that draws the content of another process, in addition to the methods of `App`.

    Its inputs only begin something; it calls `AppHost.handled` when an input has had its effect,
    and `AppHost.changed` when it has something else to show. It is not recorded, so a phone on
    which it runs cannot be saved.
    """

    def attach(self, host: AppHost) -> None:
        """Receive the phone; called once, before any other method."""

    def close(self) -> None:
        """End what runs in the other process: on the phone, the app's own process has ended."""

    async def shut_down(self) -> None:
        """End what all phones of this process share, before it ends."""
