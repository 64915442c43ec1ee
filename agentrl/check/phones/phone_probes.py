"""Findings from tests on a phone: its commands, captures, touches and typing."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from agentrl.actions.screen_actions import Key, Tap, Type
from agentrl.check.finding import Finding, note, ok, wrong
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.capture_and_input_choice import mark_fastest
from agentrl.devices.capture_and_input_timing import measure_methods, screen_toggler
from agentrl.devices.device import Device
from agentrl.errors import DeviceError, DeviceTimeout

PROBE, PROBE_ACTIVITY = "org.agentrl.probe", ".Main"
"""App that publishes its input; a tap changes the color of one half of its screen."""
_COMMANDS = 20
_SLOW_MS = 150.0
_SLOW_START_S = 5.0
ARRIVES_S = 3.0
"""Maximum time for the app to publish the effect of a touch."""
_LATE_S = 0.5
_POLL_S = 0.02
_TAP_AT = (0.3, 0.25)
_TOLERANCE = (0.03, 0.1)
"""Tolerance for system bars: an app's area excludes the status bar, maybe the navigation bar."""
_TEXT = "a b%s 'ü' 漢 🙂"
_LOST = (
    "some phones need a second switch in the developer options: USB debugging (security "
    "settings) on, or permission monitoring off; also close anything that covers the screen"
)
_CABLE = "try another cable or port, or move closer to the Wi-Fi router; then adb reconnect"


Prove = Callable[[Device], Iterator[Finding]]
"""A further test of a device with the probe app."""


def check_commands(phone: AdbPhone) -> Finding:
    """Test whether commands are answered, and how fast."""
    seconds, failures = [], []
    for _ in range(_COMMANDS):
        start = time.perf_counter()
        try:
            phone.shell("true")
        except DeviceError as error:
            failures.append(error)
            # Stop here, since every further timeout would take just as long.
            if isinstance(error, DeviceTimeout) or len(failures) > _COMMANDS // 2:
                break
            continue
        seconds.append(time.perf_counter() - start)
    if failures:
        tried = len(seconds) + len(failures)
        detail = f"{len(failures)} of {tried} failed: {failures[-1]}"
        if isinstance(failures[-1], DeviceTimeout):
            return wrong("commands", detail, "the phone hangs; replug it, or run adb reboot")
        return wrong("commands", detail, _CABLE)
    median_ms, worst_ms = 1000 * statistics.median(seconds), 1000 * max(seconds)
    detail = f"{median_ms:.1f} ms, at most {worst_ms:.0f} ms"
    if median_ms > _SLOW_MS:
        return note("commands", f"slow: {detail}", _CABLE)
    return ok("commands", detail)


class PhoneProbe:
    """Tests a phone with the probe app in front, and closes it afterwards.

    Args:
        phone: the phone to test.
        device: the same phone as a device that can launch the probe: the phone itself if the app
            is installed, else the phone with a page (`agentrl.phone_page`).
        prove: a further test with the probe, run if touches arrive.
    """

    def __init__(self, phone: AdbPhone, device: Device, prove: Prove | None = None) -> None:
        self._prove = prove
        self._phone = phone
        self._device = device
        self._arrives = False
        self._tapped = 0

    def findings(self) -> Iterator[Finding]:
        """Start the app, touch it, capture it and type into it."""
        start = time.monotonic()
        try:
            self._device.launch(PROBE, PROBE_ACTIVITY, {})
        except DeviceError as error:
            fix = "close the app in front, raise devices.deadlines.launch_s, or run adb reboot"
            yield wrong("apps start", str(error), fix)
            yield from check_captures(self._phone, screen_toggler(self._phone))
            return
        took_s = time.monotonic() - start
        if took_s > _SLOW_START_S:
            fix = f"set devices.deadlines.launch_s well above {took_s:.0f}, or free up memory"
            yield note("apps start", f"slow: it took {took_s:.1f} s{self._how}", fix)
        else:
            yield ok("apps start", f"{took_s:.1f} s{self._how}")
        try:
            yield self._touch()
            # Something has to change the screen to test whether captures are fresh.
            change = self._tap if self._arrives else screen_toggler(self._phone)
            yield from check_captures(self._phone, change)
            if self._device is self._phone and self._arrives:
                yield self._type()
            if self._prove is not None and self._arrives:
                yield from self._prove(self._device)
        except DeviceError as error:
            yield wrong("probe", str(error), "fix the problems above, then run this again")
        finally:
            self._leave()

    @property
    def _how(self) -> str:
        return "" if self._device is self._phone else ", as a page in its browser"

    def _tap(self) -> None:
        self._tapped += 1
        self._tap_at(_TAP_AT[0], _TAP_AT[1] if self._tapped % 2 else 1 - _TAP_AT[1])

    def _tap_at(self, x: float, y: float) -> None:
        area = self._device.app_area()
        self._device.perform(Tap(*((x, y) if area is None else area.to_screen(x, y))))

    def _touch(self) -> Finding:
        initial = wait_for_state(self._device, lambda state: "touches" in state)
        if initial is None:
            detail = f"the probe app published no state within {ARRIVES_S:g} s"
            return wrong("touches", detail, "adb reboot")
        # The app may already have been open and touched.
        before = initial["touches"]
        start = time.monotonic()
        try:
            self._tap_at(*_TAP_AT)
        except DeviceError as error:
            return wrong("touches", f"refused: {error}", _LOST)
        state = wait_for_state(self._device, lambda state: state["touches"] > before)
        took_s = time.monotonic() - start
        if state is None:
            detail = f"a tap was accepted but had no effect within {ARRIVES_S:g} s"
            return wrong("touches", detail, _LOST)
        self._arrives = True
        x, y = (*state.get("last", ()), None, None)[:2]
        if x is None or y is None:
            return ok("touches", f"arrive in {1000 * took_s:.0f} ms")
        if abs(x - _TAP_AT[0]) > _TOLERANCE[0] or abs(y - _TAP_AT[1]) > _TOLERANCE[1]:
            detail = f"a tap at {_TAP_AT} arrived at ({x:.2f}, {y:.2f})"
            return wrong("touches", detail, "adb shell wm size reset; adb shell wm density reset")
        if took_s > _LATE_S:
            fix = "set devices.deadlines.settle_s above 3, and close apps in the background"
            return note("touches", f"late: they arrive after {took_s:.1f} s", fix)
        return ok("touches", f"arrive in {1000 * took_s:.0f} ms")

    def _type(self) -> Finding:
        try:
            self._device.perform(Type(_TEXT))
        except DeviceError as error:
            return note("text", str(error), "none needed for games without typing")
        state = wait_for_state(self._device, lambda state: state.get("text") == _TEXT)
        if state is None:
            got = (self._device.look(PROBE).state or {}).get("text", "")
            return wrong("text", f"{_TEXT!r} arrived as {got!r}", "reinstall ADBKeyboard")
        return ok("text", f"{_TEXT!r} arrived unchanged")

    def _leave(self) -> None:
        """Stop the probe and go to the home screen, as far as the phone allows."""
        try:
            self._device.stop(PROBE)
            self._phone.perform(Key("HOME"))
        except DeviceError:
            pass


def wait_for_state(
    device: Device, arrived: Callable[[dict[str, Any]], bool]
) -> dict[str, Any] | None:
    """Wait until the probe app's state meets the condition and return it; None on timeout."""
    end = time.monotonic() + ARRIVES_S
    while True:
        state = dict(device.look(PROBE).state or {})
        if arrived(state):
            return state
        if time.monotonic() >= end:
            return None
        time.sleep(_POLL_S)


def check_captures(phone: AdbPhone, change: Callable[[], None]) -> Iterator[Finding]:
    """Test whether each capture is correct and fresh, and how fast it is."""
    measured = mark_fastest(measure_methods(phone, rounds=2, change=change))
    rows = [row for row in measured if row.kind == "capture"]
    sound = [row for row in rows if not row.failure]
    try:
        picture = phone.screenshot() if sound else None
        size = phone.size()
    except DeviceError as error:
        yield wrong("resolution", str(error), "adb reboot")
    else:
        if picture is not None:
            height, width = picture.shape[:2]
            detail = f"{width}x{height}"
            if (width, height) == size:
                yield ok("resolution", detail)
            else:
                detail = f"captures are {detail}, but the phone reports {size[0]}x{size[1]}"
                yield wrong("resolution", detail, "adb shell wm size reset")
    for row in rows:
        what = f"capture {row.name}"
        if not row.failure:
            picked = ", the one that jobs use" if row.picked else ""
            yield ok(what, f"fresh, {row.median_ms:.1f} ms{picked}")
        elif sound:
            yield note(what, row.failure, "none needed, since jobs use a different method")
        else:
            yield wrong(what, row.failure, _capture_fix(row.failure))


def _capture_fix(failure: str) -> str:
    if "black" in failure:
        return "wake and unlock the phone, and close any app that forbids captures"
    if "stale" in failure:
        return "adb reboot; stale captures cannot be trained on"
    return "free up storage and run adb reboot; if that fails, the phone does not support captures"
