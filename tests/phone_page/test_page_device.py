import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest
from playwright.sync_api import Browser

from agentrl.devices import AppGuard, Key, LongPress, Swipe, Tap, Type, Wait, Window
from agentrl.devices.pool.lease import LeasedDevice
from agentrl.envs.android.number_game import layout
from agentrl.envs.android.number_game.app import PACKAGE, NumberGameApp
from agentrl.errors import AppLeft, DeviceError, DeviceTimeout
from agentrl.phone_page import PageDevice, PageServer
from agentrl.types import Image
from tests.phone_page.chromium_phone import BROWSER, LAUNCHER, ChromiumPhone
from virtual_phone.apps.probe_app import ProbeApp

PROBE = "org.agentrl.probe"
T = TypeVar("T")
Paged = tuple[PageDevice, ChromiumPhone]


@pytest.fixture
def paged(chromium: Browser, server: PageServer) -> Iterator[Callable[..., Paged]]:
    """Makes phones that play the number game and the probe on a page."""
    devices: list[PageDevice] = []

    def make(
        width: int = 360, height: int = 640, ratio: float = 2.0, bars: tuple[int, int] = (80, 24)
    ) -> Paged:
        phone = ChromiumPhone(chromium, width, height, ratio, bars)
        devices.append(PageDevice(phone, server, [NumberGameApp(), ProbeApp()]))
        return devices[-1], phone

    yield make
    for device in devices:
        device.close()


def app_on(device: PageDevice, screen: Image) -> Image:
    """The app's part of a capture."""
    height, width = screen.shape[:2]
    area = device.app_area()
    rows = slice(round(area.top * height), round(area.bottom * height))
    return screen[rows, round(area.left * width) : round(area.right * width)]


def until(answer: Callable[[], T | None], what: str) -> T:
    """Ask again and again."""
    end = time.monotonic() + 30
    while (found := answer()) is None:
        assert time.monotonic() < end, what
        time.sleep(0.005)
    return found


def settle(device: PageDevice, package: str, touches: int) -> dict[str, Any]:
    """The state with this count of touches, as soon as it is published."""

    def arrived() -> dict[str, Any] | None:
        state = device.look(package).state
        return dict(state) if state is not None and state["touches"] >= touches else None

    state = until(arrived, f"{touches} touches did not arrive")
    assert state["touches"] == touches
    return state


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("width", "height", "ratio", "bars"),
    [(360, 640, 2.0, (80, 24)), (300, 520, 2.625, (0, 0)), (800, 600, 1.0, (50, 30))],
)
def test_a_phone_plays_a_game_on_its_page_as_a_virtual_phone_does(
    paged: Callable[..., Paged], width: int, height: int, ratio: float, bars: tuple[int, int]
) -> None:
    device, phone = paged(width, height, ratio, bars)
    app, touches = NumberGameApp(), 0
    for seed in ("3", "4"):
        device.launch(PACKAGE, ".Main", {"seed": seed, "rounds": "2"})
        app.launch({"seed": seed, "rounds": "2"})
        opened = len(phone.taps)
        assert device.focus() == PACKAGE
        area = device.app_area()
        for turn, box in enumerate((layout.CARDS[1], layout.BUTTON, layout.CARDS[2])):
            seen = app_on(device, device.screenshot())
            assert np.array_equal(seen, app.render(seen.shape[1], seen.shape[0]))
            before, after = device.send_action(Tap(*area.to_screen(*box.center)), PACKAGE)
            app.touch(*box.center)
            assert after.front == PACKAGE
            assert before.state is not None
            assert before.state["touches"] == touches + turn
            state = settle(device, PACKAGE, touches + turn + 1)
            assert {name: state[name] for name in app.state()} == dict(app.state())
        touches += 3
        assert len(phone.taps) == opened + 3
    assert device.app_state(PACKAGE)["launches"] == 2
    # One browser, opened once, and the screen filled by one touch that was no game's.
    assert sum(command[:2] == ("am", "start") for command in phone.commands) == 1
    (url,) = [command[5] for command in phone.commands if command[:2] == ("am", "start")]
    assert url.startswith("http://localhost:")
    wide, tall = phone.size()
    assert math.isclose(area.bottom - area.top, 1, abs_tol=1 / tall)
    assert (area.right - area.left) * wide <= 0.61 * tall


def test_a_page_between_the_bars_of_its_browser_is_found_and_played(
    paged: Callable[..., Paged],
) -> None:
    device, phone = paged(bars=(80, 24))
    phone.grants_full_screen = False
    device.launch(PROBE, ".Main", {})
    area = device.app_area()
    assert (area.top * 1280, area.bottom * 1280) == (160, 1232)
    device.perform(Tap(*area.to_screen(0.25, 0.01)))
    state = settle(device, PROBE, 1)
    assert state["last"] == pytest.approx([0.25, 0.01], abs=0.002)
    device.perform(Swipe(*area.to_screen(0.5, 0.9), *area.to_screen(0.5, 0.1)), 0.1)
    assert len(settle(device, PROBE, 2)["last"]) == 5
    LeasedDevice(device, "long#1").perform(LongPress(*area.to_screen(0.5, 0.9)))
    x1, y1, x2, y2, ms = settle(device, PROBE, 3)["last"]
    assert (x1, y1) == (x2, y2)
    assert ms >= 900, "a page takes what is shorter than 800 for a tap"
    # A tap on a bar counts as one that has no effect, and the browser never has it.
    before, sent = settle(device, PROBE, 3), len(phone.taps)
    device.perform(Tap(0.5, 0.02))
    assert settle(device, PROBE, 4) == {**before, "touches": 4}
    assert len(phone.taps) == sent
    device.perform(Key("HOME"))
    device.perform(Tap(0.5, 0.02))
    assert len(phone.taps) == sent + 1, "beside no page it is the phone's"


def test_keys_and_text_go_to_the_app_and_unused_back_or_home_leaves_it(
    paged: Callable[..., Paged],
) -> None:
    device, phone = paged()
    device.launch(PROBE, ".Main", {"level": "2"})
    device.perform(Key("ENTER"))
    device.perform(Type("it's 50 %"))
    state = settle(device, PROBE, 2)
    assert (state["keys"], state["text"]) == (["KEYCODE_ENTER"], "it's 50 %")
    assert not [command for command in phone.commands if command[0] in ("key", "text")]
    device.perform(Key("BACK"))
    assert ("key", "HOME") in phone.commands
    assert device.look(PROBE).front == LAUNCHER
    device.perform(Key("ENTER"))
    device.perform(Type("to the phone"))
    assert phone.commands[-2:] == [("key", "ENTER"), ("text", "to the phone")]
    assert device.app_state(PROBE)["keys"][-1] == "KEYCODE_BACK"
    # Launched again, it opens its page again.
    device.launch(PROBE, ".Main", {})
    assert device.focus() == PROBE
    assert device.app_state(PROBE)["launches"] == 2


@pytest.mark.slow
def test_apps_take_turns_on_one_page(paged: Callable[..., Paged]) -> None:
    device, phone = paged()
    device.launch(PACKAGE, ".Main", {"seed": "1"})
    device.launch(PROBE, ".Main", {})
    assert device.focus() == PROBE
    halves = app_on(device, device.screenshot())
    assert np.array_equal(halves, ProbeApp().render(halves.shape[1], halves.shape[0]))
    device.stop(PROBE)
    assert device.focus() == BROWSER
    with pytest.raises(DeviceError, match="publishes no state"):
        device.app_state(PROBE)
    device.stop("com.example.other")
    assert phone.commands[-1] == ("stop", "com.example.other")


def test_a_broken_tunnel_does_not_count_as_leaving(paged: Callable[..., Paged]) -> None:
    device, phone = paged()
    device.launch(PROBE, ".Main", {})
    assert phone.wire is not None
    phone.wire.cut()
    until(lambda: device.focus() != PROBE or None, "the connection is still there")
    assert device.focus() is None
    device.perform(Tap(*device.app_area().to_screen(0.5, 0.25)))
    phone.wire.restore()
    device.reconnect()
    assert phone.commands[-1] == ("reconnect",)
    assert until(device.focus, "the page did not come back") == PROBE


def test_the_window_in_front_is_the_apps_while_its_page_shows_it(
    paged: Callable[..., Paged],
) -> None:
    device, phone = paged()
    guard = AppGuard(device, PROBE)
    guard.begin()
    assert device.window() == Window(kind="foreign_app", package=LAUNCHER)
    device.launch(PROBE, ".Main", {})
    assert device.window() == Window(kind="foreign_app", package=PROBE)
    tap = Tap(*device.app_area().to_screen(0.5, 0.25))
    guarded = guard.perform(tap, before=device.screenshot())
    assert (guarded.events, guarded.left) == ((), False)
    # A dialog about the browser is one about who shows the app.
    phone.dialog = True
    assert (device.focus(), device.window().kind) == (None, "anr")
    with pytest.raises(AppLeft, match=r"^anr: .* com\.android\.chrome"):
        guard.perform(Wait(0.0), before=device.screenshot())
    phone.dialog = False
    # Something else in the browser is none of the app.
    device.deadlines = replace(device.deadlines, settle_s=0.5)
    phone.page.goto("about:blank")
    until(lambda: device.focus() == BROWSER or None, "the page is still there")
    assert device.window() == Window(kind="foreign_app", package=BROWSER)
    with pytest.raises(AppLeft, match=r"^foreign_app: .* com\.android\.chrome"):
        guard.perform(Wait(0.0), before=device.screenshot())


def test_a_page_that_is_not_connected_is_nothing_in_front(paged: Callable[..., Paged]) -> None:
    device, phone = paged()
    device.launch(PROBE, ".Main", {})
    device.deadlines = replace(device.deadlines, settle_s=0.5)
    assert phone.wire is not None
    phone.wire.cut()
    until(lambda: device.focus() is None or None, "the connection is still there")
    assert device.window().kind == "nothing_in_front"
    with pytest.raises(AppLeft, match=r"^nothing_in_front"):
        AppGuard(device, PROBE).perform(Wait(0.0), before=device.screenshot())


def test_a_page_that_moves_on_the_screen_is_found_again(paged: Callable[..., Paged]) -> None:
    device, phone = paged(bars=(80, 24))
    device.launch(PROBE, ".Main", {})
    assert device.app_area().top == 0
    phone.turn(360, 640, full=False)  # the bars come back
    device._browser.app.wait(  # type: ignore[union-attr]
        lambda status: status.settled and status.size == (720, 1072), 30, "resized"
    )
    area = device.app_area()
    assert (area.top * 1280, area.bottom * 1280) == (160, 1232)
    device.perform(Tap(*area.to_screen(0.5, 0.25)))
    assert settle(device, PROBE, 1)["halves"] == [1, 1]


def test_launching_times_out_if_something_covers_the_page(paged: Callable[..., Paged]) -> None:
    device, phone = paged()
    device.launch(PROBE, ".Main", {})
    phone.overlay = np.full((100, 200, 3), 255, np.uint8)
    assert np.array_equal(device.screenshot()[:100, :200], phone.overlay)
    device.deadlines = replace(device.deadlines, launch_s=1.0)
    with pytest.raises(DeviceTimeout, match="is the page covered"):
        device.launch(PROBE, ".Main", {})


def test_a_failed_launch_says_why(paged: Callable[..., Paged]) -> None:
    device, phone = paged()
    with pytest.raises(DeviceError, match=r"com\.example\.other/\.Main is not an app"):
        device.launch("com.example.other", ".Main", {})
    with pytest.raises(DeviceError, match="is not an app of this phone"):
        device.launch(PROBE, ".Other", {})
    with pytest.raises(DeviceError, match="rejects its extras: refuse=now"):
        device.launch(PROBE, ".Main", {"refuse": "now"})
    with pytest.raises(DeviceError, match="the screen does not show the page"):
        device.app_area()
    device.deadlines = replace(device.deadlines, launch_s=0.5)
    phone.shell = lambda *_: "Error: Activity not started, unable to resolve Intent"  # type: ignore[method-assign]
    with pytest.raises(DeviceError, match="cannot open a browser: Error: Activity not started"):
        device.launch(PROBE, ".Main", {})
    phone.shell = lambda *_: ""  # type: ignore[method-assign]
    with pytest.raises(DeviceTimeout, match="the page did not answer"):
        device.launch(PROBE, ".Main", {})
    assert phone.wire is not None
    device.close()
    assert phone.wire is None, "the tunnel ends with the device, also where no page was found"
