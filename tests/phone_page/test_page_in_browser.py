import random

import numpy as np
import pytest
from playwright.sync_api import Browser

from agentrl.devices import Tap, open_device
from agentrl.devices.adb import AdbServer
from agentrl.envs.android.number_game import layout
from agentrl.envs.android.number_game.app import PACKAGE, NumberGameApp
from agentrl.phone_page import PageApp, PageServer, PageVisibility
from tests.phone_page.chromium_phone import Tab, tap_app, wait_for
from tests.phone_page.conftest import OpenPage, start_chromium
from tests.phone_page.flaky_proxy import FlakyProxy
from virtual_phone.apps.probe_app import ProbeApp

# CSS pixels and pixels per CSS pixel: a small phone, two usual ones, a tablet on its side.
SHAPES = [(320, 480, 1.0), (360, 640, 2.0), (412, 915, 2.625), (800, 600, 1.5)]
BOXES = {**{f"card {n}": box for n, box in enumerate(layout.CARDS)}, "button": layout.BUTTON}


def numbers(**extras: str) -> PageApp:
    host = PageApp(NumberGameApp())
    host.launch({"seed": "7", "rounds": "3", **extras})
    return host


def assert_page_fits(tab: Tab, host: PageApp) -> None:
    """The page has every pixel of the screen, and the app as many of them as its shape allows."""
    shown = host.status().shown
    assert shown is not None
    height, width = shown.picture.shape[:2]
    ratio = tab.ratio
    wide, tall = tab.page.evaluate("() => [innerWidth, innerHeight]")
    assert abs(width - wide * ratio) < 1
    assert abs(height - tall * ratio) < 1
    assert max(shown.area.width / width, shown.area.height / height) == 1
    assert 0.39 < shown.area.width / shown.area.height < 0.61


def assert_page_shows(tab: Tab, host: PageApp, app: NumberGameApp) -> None:
    """The page is, pixel for pixel, what the app draws at the size of its area; else black."""
    shown = host.status().shown
    assert shown is not None
    screen, area = tab.screenshot(), shown.area
    assert screen.shape == shown.picture.shape
    rows, columns = (
        slice(area.top, area.top + area.height),
        slice(area.left, area.left + area.width),
    )
    assert np.array_equal(screen[rows, columns], app.render(area.width, area.height))
    screen[rows, columns] = 0
    assert not screen.any()


@pytest.mark.quick("412-915-2.625")
@pytest.mark.parametrize(("width", "height", "ratio"), SHAPES)
def test_every_screen_shows_the_apps_picture_and_touches_hit_their_target(
    open_page: OpenPage, width: int, height: int, ratio: float
) -> None:
    host, app = numbers(), NumberGameApp()
    tab = open_page(host, width, height, ratio)
    wait_for(host, touches=0)
    assert_page_fits(tab, host)
    corners = ((0.03, 0.03), (0.97, 0.03), (0.03, 0.97), (0.97, 0.97))
    for control, ((across, down), box) in enumerate(zip(corners, BOXES.values(), strict=True)):
        x = box.left + across * (box.right - box.left)
        y = box.top + down * (box.bottom - box.top)
        if box is not layout.BUTTON:
            host.launch({"seed": "7", "rounds": "3"})
            app.launch({"seed": "7", "rounds": "3"})
            wait_for(host, launches=2 + control, phase="pick")
        tap_app(tab, host, x, y)
        assert app.touch(x, y)
        after = wait_for(host, touches=control + 1)
        if box is layout.BUTTON:
            assert (after["round"], after["phase"]) == (2, "pick")
        else:
            assert after["picked"] == control
    assert_page_shows(tab, host, app)
    # Just beside a control nothing happens, and is counted.
    tap_app(tab, host, layout.CARDS[0].left - 0.01, layout.CARDS[0].center[1])
    assert wait_for(host, touches=5)["phase"] == "pick"


def test_a_fractional_pixel_ratio_is_matched_to_the_pixel(
    chromium: Browser, server: PageServer, wire: FlakyProxy
) -> None:
    # Emulated screens count pixels otherwise than those that have such a ratio by themselves.
    ratio, size = "--force-device-scale-factor=2.625", "--window-size=503,917"
    browser = start_chromium(chromium.browser_type, ratio, size, "--hide-scrollbars")
    host, app = numbers(), NumberGameApp()
    server.add(host)
    app.launch({"seed": "7", "rounds": "3"})
    tab = Tab(browser, 0, 0, 2.625, no_viewport=True)
    tab.page.goto(server.url(host))
    wait_for(host, touches=0)
    assert_page_fits(tab, host)
    assert_page_shows(tab, host, app)
    tap_app(tab, host, *layout.CARDS[2].center)
    assert wait_for(host, touches=1)["picked"] == 2
    browser.close()


def test_a_touch_outside_the_app_counts_without_effect(open_page: OpenPage) -> None:
    host = numbers()
    tab = open_page(host, 800, 360, 2)
    before = wait_for(host, touches=0)
    tab.tap(5, 400)
    assert wait_for(host, touches=1) == {**before, "touches": 1}


@pytest.mark.quick("true")
@pytest.mark.adb
@pytest.mark.parametrize("memory", ["false", "true"])
def test_the_same_seeds_give_the_same_games_as_on_a_virtual_phone(
    open_page: OpenPage, adb_server: AdbServer, memory: str
) -> None:
    bar, height, width = 49, 1232, 720
    host = PageApp(NumberGameApp())
    tab = open_page(host, width // 2, height // 2, 2)
    app = "agentrl.envs.android.number_game.app:NumberGameApp"
    phone = open_device("virtual", apps=[app], size=(width, height + bar), tempo="quick")
    chance = random.Random(memory)
    for seed in ("5", "11"):
        extras = {"seed": seed, "rounds": "2", "memory": memory}
        phone.launch(PACKAGE, ".Main", extras)
        host.launch(extras)
        for turn in range(8):
            expected = phone.app_state(PACKAGE)
            counts = {name: expected[name] for name in ("touches", "launches")}
            assert wait_for(host, **counts) == expected
            if turn % 3 == 0:
                assert np.array_equal(tab.screenshot(), phone.screenshot()[bar:])
            x, y = chance.choice(list(BOXES.values())).center
            px, py = int(x * width) + 0.5, int(y * height) + 0.5
            tab.tap(px, py)
            phone.perform(Tap(px / width, (py + bar) / (height + bar)))
        # A touch that is still on its way when the next game begins belongs to neither.
        wait_for(host, touches=phone.app_state(PACKAGE)["touches"])
    phone.close()


def test_a_swipe_a_long_press_and_a_tap_are_distinguished(open_page: OpenPage) -> None:
    host = PageApp(ProbeApp())
    host.launch({})
    tab = open_page(host, 400, 600, 1)
    wait_for(host, touches=0)
    tab.swipe((40, 60), (60, 90), (200, 360), seconds=0.1)
    x1, y1, x2, y2, ms = wait_for(host, touches=1)["last"]
    area = host.status().shown.area  # type: ignore[union-attr]
    reported = (
        x1 * area.width + area.left,
        y1 * area.height,
        x2 * area.width + area.left,
        y2 * 600,
    )
    assert reported == pytest.approx((40, 60, 200, 360))
    assert 100 <= ms < 10_000
    tab.swipe((200, 100), seconds=0.9)
    x1, y1, x2, y2, ms = wait_for(host, touches=2)["last"]
    assert (x1, y1) == (x2, y2)
    assert ms >= 850
    tab.swipe((200, 100), (204, 103), (200, 100))
    assert len(wait_for(host, touches=3)["last"]) == 2
    # There and back again is no tap, though it ends where it began.
    tab.swipe((200, 100), (260, 100), (200, 100))
    assert len(wait_for(host, touches=4)["last"]) == 5


def test_a_gesture_taken_by_the_phone_counts_without_effect(
    open_page: OpenPage,
) -> None:
    host = PageApp(ProbeApp())
    host.launch({})
    tab = open_page(host, 400, 600, 1)
    before = wait_for(host, touches=0)
    tab.swipe((200, 100), (204, 103), end="touchCancel")
    assert wait_for(host, touches=1) == {**before, "touches": 1}


def test_a_second_finger_is_ignored(open_page: OpenPage) -> None:
    host = PageApp(ProbeApp())
    host.launch({})
    tab = open_page(host, 400, 600, 1)
    wait_for(host, touches=0)
    first, second = {"x": 200, "y": 100, "id": 1}, {"x": 300, "y": 500, "id": 2}
    tab.send_touch("touchStart", first)
    tab.send_touch("touchStart", first, second)
    tab.send_touch("touchEnd", first)
    tab.send_touch("touchEnd")
    tab.tap(200, 500)
    state = wait_for(host, touches=2)
    assert state["halves"] == [1, 2]


def test_a_mouse_works_like_a_finger(open_page: OpenPage) -> None:
    host = numbers()
    tab = open_page(host, 360, 640, 1)
    wait_for(host, touches=0)
    x, y = layout.CARDS[1].center
    tab.page.mouse.click(360 * x, 640 * y)
    assert wait_for(host, touches=1)["picked"] == 1


def test_the_page_neither_scrolls_nor_zooms_nor_selects(open_page: OpenPage) -> None:
    host = PageApp(ProbeApp())
    host.launch({})
    tab = open_page(host, 400, 600, 2)
    wait_for(host, touches=0)
    tab.swipe((400, 200), (400, 700), (400, 1100))  # what would pull to refresh
    tab.swipe((400, 1000), (400, 300))
    for _ in range(2):
        tab.tap(400, 300)
    wait_for(host, touches=4, launches=1)
    reported = tab.page.evaluate(
        "() => [scrollX, scrollY, visualViewport.scale, visualViewport.offsetTop, "
        "getSelection().type, document.documentElement.scrollHeight]"
    )
    assert reported == [0, 0, 1, 0, "None", 600]


def test_a_rotated_screen_is_redrawn_and_touches_still_hit(open_page: OpenPage) -> None:
    host = numbers()
    tab = open_page(host, 360, 640, 2)
    wait_for(host, touches=0)
    tab.page.set_viewport_size({"width": 640, "height": 360})
    host.wait(lambda status: status.settled and status.size == (1280, 720), 30, "turned")
    tap_app(tab, host, *layout.CARDS[0].center)
    assert wait_for(host, touches=1)["picked"] == 0


def test_a_stopped_app_leaves_a_black_page_and_publishes_nothing(open_page: OpenPage) -> None:
    host = numbers()
    tab = open_page(host)
    wait_for(host, touches=0)
    host.stop()
    assert host.state() is None
    host.wait(lambda status: status.settled, 30, "black")
    assert not tab.screenshot().any()
    tab.tap(300, 300)
    host.launch({"seed": "1"})
    assert wait_for(host, launches=2)["touches"] == 0


def test_an_app_that_raises_is_stopped_and_its_page_survives(
    open_page: OpenPage, caplog: pytest.LogCaptureFixture
) -> None:
    class Fragile(ProbeApp):
        def touch(self, x: float, y: float) -> bool:
            raise RuntimeError("too hard")

    host = PageApp(Fragile())
    host.launch({})
    tab = open_page(host)
    wait_for(host, touches=0)
    tab.tap(300, 300)
    host.wait(lambda status: status.settled and not status.running, 30, "it did not crash")
    assert host.state() is None
    assert "crashed" in caplog.text
    host.launch({})
    assert wait_for(host, launches=2)["touches"] == 0  # as on a virtual phone


def test_a_page_that_is_hidden_is_not_in_front(
    chromium: Browser, server: PageServer, wire: FlakyProxy
) -> None:
    host = numbers()
    server.add(host)
    # Tabs of one window, which is what a phone's browser has.
    window = chromium.new_browser_cdp_session()
    ours = window.send("Target.createTarget", {"url": server.url(host)})["targetId"]
    wait_for(host, touches=0)
    other = window.send("Target.createTarget", {"url": "about:blank"})["targetId"]
    host.wait(lambda status: status.visibility is PageVisibility.HIDDEN, 30, "hidden")
    # What changes meanwhile is neither painted nor published.
    host.touch(*layout.CARDS[0].center)
    assert host.state()["touches"] == 0  # type: ignore[index]
    window.send("Target.closeTarget", {"targetId": other})
    assert wait_for(host, touches=1)["picked"] == 0
    # A page that is closed says so, and is not taken for one whose connection went.
    window.send("Target.closeTarget", {"targetId": ours})
    status = host.wait(lambda status: not status.connected, 30, "closed")
    assert status.visibility is PageVisibility.HIDDEN
    window.detach()


def test_a_newer_page_replaces_an_older_one_and_both_are_notified(
    open_page: OpenPage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="agentrl")
    host = numbers()
    older = open_page(host)
    wait_for(host, touches=0)
    older.tap(*(n * 0.5 for n in (0, 0)))
    wait_for(host, touches=1)
    newer = open_page(host)
    older.wait_for_notice("open on another page")
    wait_for(host, touches=1)
    assert newer.notice() is None
    assert "a newer page replaced" in caplog.text
    tap_app(newer, host, *layout.CARDS[0].center)
    assert wait_for(host, touches=2)["picked"] == 0
    # The older one does not fight for its place.
    older.page.wait_for_timeout(500)
    assert host.status().settled


def test_a_page_whose_game_has_ended_says_so_and_stops_reconnecting(
    open_page: OpenPage, server: PageServer
) -> None:
    host = numbers()
    tab = open_page(host)
    wait_for(host, touches=0)
    server.remove(host)
    tab.wait_for_notice("has ended")
