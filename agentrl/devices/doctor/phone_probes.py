"""What a phone is tried with: commands, captures, touches and text, each told to be what it is."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from agentrl.devices import capture_benchmark
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.device import Device
from agentrl.errors import DeviceError, DeviceTimeout
from agentrl.findings import Finding, note, ok, wrong

PROBE = "org.agentrl.probe"
"""The app that publishes what arrives: two halves, each of which changes its colour by a tap."""
_ACTIVITY = ".Main"
_COMMANDS = 20
_SLOW_MS = 150.0
_SLOW_START_S = 5.0
_ARRIVES_S = 3.0
_LATE_S = 0.5
_POLL_S = 0.02
_PLACE = (0.3, 0.25)
_NEAR = (0.03, 0.1)
"""An app's own area begins below the status bar, and may end above the navigation bar."""
_TEXT = "a b%s 'ü' 漢 🙂"
_LOST = (
    "some phones want a second switch in the developer options: USB debugging (security "
    "settings), or, off, permission monitoring; also close whatever lies over the screen"
)
_CABLE = "another cable or port, or Wi-Fi closer to the router; then adb reconnect"


def commands(phone: AdbPhone) -> Finding:
    """Whether commands are answered, and how fast."""
    seconds, failures = [], []
    for _ in range(_COMMANDS):
        start = time.perf_counter()
        try:
            phone.shell("true")
        except DeviceError as error:
            failures.append(error)
            if isinstance(error, DeviceTimeout) or len(failures) > _COMMANDS // 2:
                break
            continue
        seconds.append(time.perf_counter() - start)
    if failures:
        tried = len(seconds) + len(failures)
        detail = f"{len(failures)} of {tried} failed: {failures[-1]}"
        if isinstance(failures[-1], DeviceTimeout):
            return wrong("commands", detail, "it hangs: unplug it, or adb reboot")
        return wrong("commands", detail, _CABLE)
    median_ms, worst_ms = 1000 * statistics.median(seconds), 1000 * max(seconds)
    detail = f"{median_ms:.1f} ms, at most {worst_ms:.0f} ms"
    if median_ms > _SLOW_MS:
        return note("commands", f"slow: {detail}", _CABLE)
    return ok("commands", detail)


class Probe:
    """Tries a phone out with the probe app in front, and puts away what it opened."""

    def __init__(self, phone: AdbPhone, device: Device) -> None:
        """Opens nothing yet.

        Args:
            phone: to be tried.
            device: the same phone as something that can launch the probe: itself where the app is
                installed, else the phone with a page (`agentrl.phone_page`).
        """
        self._phone = phone
        self._device = device
        self._arrives = False
        self._tapped = 0

    def findings(self) -> Iterator[Finding]:
        """Start the app, touch it, look at it, type into it."""
        start = time.monotonic()
        try:
            self._device.launch(PROBE, _ACTIVITY, {})
        except DeviceError as error:
            mend = "close what is in front, or raise devices.deadlines.launch_s; else adb reboot"
            yield wrong("apps start", str(error), mend)
            yield from captures(self._phone, capture_benchmark.toggle(self._phone))
            return
        took_s = time.monotonic() - start
        if took_s > _SLOW_START_S:
            mend = f"devices.deadlines.launch_s well above {took_s:.0f}; free its memory"
            yield note("apps start", f"slow: it took {took_s:.1f} s{self._how}", mend)
        else:
            yield ok("apps start", f"{took_s:.1f} s{self._how}")
        try:
            yield self._touch()
            change = self._tap if self._arrives else capture_benchmark.toggle(self._phone)
            yield from captures(self._phone, change)
            if self._device is self._phone and self._arrives:
                yield self._type()
        except DeviceError as error:
            yield wrong("probe", str(error), "mend what is told above, and look again")
        finally:
            self._leave()

    @property
    def _how(self) -> str:
        return "" if self._device is self._phone else ", as a page in its browser"

    def _tap(self) -> None:
        self._tapped += 1
        self._tap_at(_PLACE[0], _PLACE[1] if self._tapped % 2 else 1 - _PLACE[1])

    def _tap_at(self, x: float, y: float) -> None:
        area = self._device.app_area()
        self._device.tap(*((x, y) if area is None else area.to_screen(x, y)))

    def _touch(self) -> Finding:
        told = self._wait(lambda state: "touches" in state)
        if told is None:
            detail = f"the probe app told nothing of itself in {_ARRIVES_S:g} s"
            return wrong("touches", detail, "adb reboot")
        before = told["touches"]
        start = time.monotonic()
        try:
            self._tap_at(*_PLACE)
        except DeviceError as error:
            return wrong("touches", f"refused: {error}", _LOST)
        state = self._wait(lambda state: state["touches"] > before)
        took_s = time.monotonic() - start
        if state is None:
            detail = f"a tap was accepted and did nothing in {_ARRIVES_S:g} s"
            return wrong("touches", detail, _LOST)
        self._arrives = True
        x, y = (*state.get("last", ()), None, None)[:2]
        if x is None or y is None:
            return ok("touches", f"arrive in {1000 * took_s:.0f} ms")
        if abs(x - _PLACE[0]) > _NEAR[0] or abs(y - _PLACE[1]) > _NEAR[1]:
            detail = f"a tap at {_PLACE} arrived at ({x:.2f}, {y:.2f})"
            return wrong("touches", detail, "adb shell wm size reset; adb shell wm density reset")
        if took_s > _LATE_S:
            mend = "devices.deadlines.settle_s above 3; end what runs in the background"
            return note("touches", f"late: known of after {took_s:.1f} s", mend)
        return ok("touches", f"arrive in {1000 * took_s:.0f} ms")

    def _type(self) -> Finding:
        try:
            self._device.text(_TEXT)
        except DeviceError as error:
            return note("text", str(error), "none needed for games that type nothing")
        state = self._wait(lambda state: state.get("text") == _TEXT)
        if state is None:
            got = self._state().get("text", "")
            return wrong("text", f"{_TEXT!r} arrived as {got!r}", "install ADBKeyboard anew")
        return ok("text", f"{_TEXT!r} arrived as it is")

    def _state(self) -> dict[str, Any]:
        return dict(self._device.look(PROBE).state or {})

    def _wait(self, arrived: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        """The state as soon as it is so; None where it never was."""
        end = time.monotonic() + _ARRIVES_S
        while True:
            state = self._state()
            if arrived(state):
                return state
            if time.monotonic() >= end:
                return None
            time.sleep(_POLL_S)

    def _leave(self) -> None:
        """The phone as it was found, as far as it lets us."""
        try:
            self._device.stop(PROBE)
            self._phone.key("HOME")
        except DeviceError:
            pass


def captures(phone: AdbPhone, change: Callable[[], None]) -> Iterator[Finding]:
    """Whether each way to look at the screen is right and shows a change, and how fast it is."""
    rows = [
        row
        for row in capture_benchmark.measure(phone, rounds=2, change=change)
        if row.kind == "capture"
    ]
    sound = [row for row in rows if not row.failure]
    try:
        picture = phone.screenshot() if sound else None
        told = phone.size()
    except DeviceError as error:
        yield wrong("resolution", str(error), "adb reboot")
    else:
        if picture is not None:
            height, width = picture.shape[:2]
            detail = f"{width}x{height}"
            mend = "adb shell wm size reset"
            fits = (width, height) == told
            yield (
                ok("resolution", detail)
                if fits
                else wrong(
                    "resolution",
                    f"captures have {detail}, the phone says {told[0]}x{told[1]}",
                    mend,
                )
            )
    for row in rows:
        what = f"capture {row.name}"
        if not row.failure:
            picked = ", the one that jobs take" if row.picked else ""
            yield ok(what, f"fresh, {row.median_ms:.1f} ms{picked}")
        elif sound:
            yield note(what, row.failure, "none needed: jobs take another")
        else:
            yield wrong(what, row.failure, _capture_mend(row.failure))


def _capture_mend(failure: str) -> str:
    if "black" in failure:
        return "wake and unlock it; leave the app that forbids captures"
    if "stale" in failure:
        return "adb reboot; a screen that shows no change cannot be trained on"
    return "free its storage and adb reboot; if it stays, its Android gives no captures"
