import time

import pytest

from agentrl.phone_page import PageApp, PageServer, PageVisibility
from tests.phone_page.chromium_phone import Tab, wait_for
from tests.phone_page.conftest import OpenPage
from tests.phone_page.flaky_proxy import FlakyProxy
from virtual_phone.apps.probe_app import ProbeApp

TOP, BOTTOM = (200, 150), (200, 450)


def open_probe(open_page: OpenPage) -> tuple[PageApp, Tab]:
    host = PageApp(ProbeApp())
    host.launch({})
    tab = open_page(host, 400, 600, 1)
    wait_for(host, touches=0)
    return host, tab


def wait_until_lost(host: PageApp) -> None:
    host.wait(lambda status: not status.connected, 30, "the connection was not lost")
    assert host.status().visibility is PageVisibility.LOST


def test_a_dropped_connection_reconnects_to_the_same_game(open_page: OpenPage) -> None:
    host, tab = open_probe(open_page)
    for touches in (1, 2, 3):
        tab.tap(*TOP)
        state = wait_for(host, touches=touches)
        frame = host.status().number
        host.drop()
        host.wait(lambda status: status.number > frame and status.settled, 30, "it is not back")  # noqa: B023
        assert wait_for(host, touches=touches) == state
    assert tab.notice() is None


def test_a_restarted_server_continues_the_same_game(
    open_page: OpenPage, server: PageServer
) -> None:
    host, tab = open_probe(open_page)
    tab.tap(*TOP)
    before = wait_for(host, touches=1)
    port = server.port
    server.stop()
    wait_until_lost(host)
    assert host.state() == before
    tab.wait_for_notice("Connecting")
    tab.tap(*TOP)  # the page is not visible, so no touch may count
    server.start()
    assert server.port == port
    assert wait_for(host, touches=1) == before
    assert tab.notice() is None
    tab.tap(*BOTTOM)
    assert wait_for(host, touches=2)["halves"] == [1, 2]


def test_a_touch_on_a_dead_connection_is_resent_and_handled_once(
    open_page: OpenPage, wire: FlakyProxy
) -> None:
    host, tab = open_probe(open_page)
    wire.swallows_up = True
    tab.tap(*TOP)
    tab.tap(*BOTTOM)
    tab.tap(*BOTTOM)
    wire.cut()
    wait_until_lost(host)
    assert host.state()["touches"] == 0  # type: ignore[index]
    wire.restore()
    assert wait_for(host, touches=3)["halves"] == [1, 3]
    tab.tap(*TOP)
    assert wait_for(host, touches=4)["halves"] == [2, 3]


def test_a_touch_whose_answer_is_lost_is_not_handled_twice(
    open_page: OpenPage, wire: FlakyProxy
) -> None:
    host, tab = open_probe(open_page)
    wire.swallows_down = True
    tab.tap(*TOP)
    tab.tap(*BOTTOM)
    # Handled but not published: the page could not paint it.
    deadline = time.monotonic() + 30
    while host._connection.handled < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert host.state()["touches"] == 0  # type: ignore[index]
    wire.cut()
    wait_until_lost(host)
    wire.restore()
    assert wait_for(host, touches=2)["halves"] == [1, 2]
    tab.tap(*TOP)
    assert wait_for(host, touches=3)["halves"] == [2, 2]


def test_the_page_gives_up_a_connection_without_heartbeats(
    open_page: OpenPage, wire: FlakyProxy
) -> None:
    host, tab = open_probe(open_page)
    tab.page.evaluate("() => { heard = -LOST_AFTER_MS; }")
    wire.swallows_up = wire.swallows_down = True
    tab.wait_for_notice("Connecting")
    wire.cut()
    wire.restore()
    tab.tap(*TOP)
    wait_for(host, touches=0)
    assert tab.notice() is None


def test_a_touch_of_a_finished_game_never_reaches_the_next_one(
    open_page: OpenPage, wire: FlakyProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="agentrl")
    host, tab = open_probe(open_page)
    wire.swallows_up = True
    tab.tap(*TOP)
    wire.cut()
    wait_until_lost(host)
    host.launch({"game": "next"})
    wire.restore()
    state = wait_for(host, launches=2)
    tab.tap(*BOTTOM)
    state = wait_for(host, touches=1)
    assert state["halves"] == [0, 2]
    assert "dropped a touch from before the launch" in caplog.text
