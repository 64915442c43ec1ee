import threading

import pytest

from agentrl.errors import DeviceTimeout
from agentrl.phone_page import PageApp, PageVisibility
from agentrl.phone_page.page_connection_state import CloseReason
from agentrl.phone_page.page_messages import BadMessage, Gesture, PageHello
from tests.envs.toy import ToyApp
from virtual_phone.apps.probe_app import ProbeApp


class FakeLink:
    """A connection that paints nothing by itself."""

    def __init__(self) -> None:
        self.wakes = 0
        self.ended: list[CloseReason] = []

    def wake(self) -> None:
        self.wakes += 1

    def end(self, why: CloseReason) -> None:
        self.ended.append(why)


def hello(page: str = "a", *, visible: bool = True, width: int = 400) -> PageHello:
    return PageHello(page=page * 32, width=width, height=800, visible=visible)


def gesture(number: int, frame: int, y: float = 0.25, **values: float | bool) -> Gesture:
    defaults = {"x1": 0.5, "y1": y, "x2": 0.5, "y2": y, "ms": 50, "moved": 0.0, "cancelled": False}
    return Gesture(number=number, frame=frame, **{**defaults, **values})  # type: ignore[arg-type]


@pytest.fixture
def host() -> PageApp:
    host = PageApp(ProbeApp())
    host.launch({"level": "2"})
    return host


def paint(host: PageApp, link: FakeLink) -> int:
    number = host.draw().number
    host.paint(link, number)
    return number


def test_a_state_is_published_when_the_page_has_painted_it(host: PageApp) -> None:
    link = FakeLink()
    assert host.state() is None
    assert host.connect(link, hello()) == (0, False)
    assert host.status().visibility is PageVisibility.LOST, (
        "it shows something else until it paints"
    )
    assert host.state() is None
    paint(host, link)
    assert host.status().visibility is PageVisibility.VISIBLE
    state = host.state()
    assert state is not None
    assert state == {
        "touches": 0, "launches": 1, "halves": [0, 1], "last": [], "keys": [], "text": "",
        "centers": [], "hits": [],
        "extras": {"level": "2"},
    }  # fmt: skip
    assert host.touch(0.5, 0.25)
    assert host.state() == state
    assert not host.status().settled
    paint(host, link)
    assert host.status().settled
    assert host.state() == {**state, "touches": 1, "halves": [1, 1], "last": [0.5, 0.25]}


def test_everything_that_reaches_the_app_counts_with_or_without_effect(host: PageApp) -> None:
    link = FakeLink()
    host.connect(link, hello())
    done = [
        host.touch(0.5, 0.5),  # the probe does nothing there
        host.touch(-0.1, 0.5),  # beside the app
        host.swipe(0.5, 0.9, 0.5, 1.4, 300),
        host.swipe(0.5, -0.1, 0.5, 0.5, 300),
        host.key("KEYCODE_ENTER"),
        host.key("KEYCODE_BACK"),
        host.key("KEYCODE_HOME"),
        host.text("42"),
    ]
    host.miss()
    assert done == [False, False, True, False, True, False, False, True]
    paint(host, link)
    state = host.state()
    assert state is not None
    assert state["touches"] == 9
    assert state["keys"] == ["KEYCODE_ENTER", "KEYCODE_BACK"]
    assert state["last"] == [0.5, 0.9, 0.5, 1.0, 300]
    host.stop()
    assert not host.touch(0.5, 0.25)
    host.launch({})
    paint(host, link)
    assert host.state()["touches"] == 9  # type: ignore[index]


def test_a_gesture_is_handled_once_however_often_it_is_sent(host: PageApp) -> None:
    first, again = FakeLink(), FakeLink()
    host.connect(first, hello())
    frame = paint(host, first)
    assert host.gesture(first, gesture(1, frame)) == 1
    assert host.gesture(first, gesture(1, frame)) == 1
    host.disconnect(first)
    assert host.connect(again, hello()) == (1, False)
    assert host.gesture(again, gesture(1, frame)) == 1
    assert host.gesture(again, gesture(2, frame)) == 2
    assert host.gesture(first, gesture(3, frame)) == 2, "that connection is over"
    with pytest.raises(BadMessage, match="expected gesture 3, got gesture 4"):
        host.gesture(again, gesture(4, frame))
    paint(host, again)
    assert host.state()["touches"] == 2  # type: ignore[index]


def test_a_new_page_counts_its_own_gestures_and_replaces_the_old_one(host: PageApp) -> None:
    older, newer = FakeLink(), FakeLink()
    host.connect(older, hello())
    frame = paint(host, older)
    host.gesture(older, gesture(1, frame))
    assert host.connect(newer, hello("b", width=300)) == (0, True)
    assert older.ended == [CloseReason.REPLACED]
    host.gesture(newer, gesture(1, frame))
    # What comes late from the older one changes nothing.
    host.set_visible(older, False)
    host.resize(older, 999, 999)
    host.paint(older, host.draw().number)
    host.disconnect(older)
    status = host.status()
    assert (status.connected, status.size, status.settled) == (True, (300, 800), False)
    paint(host, newer)
    assert host.status().settled
    assert host.state()["touches"] == 2  # type: ignore[index]


def test_touches_of_an_older_launch_or_of_the_pattern_do_not_reach_the_game(host: PageApp) -> None:
    link = FakeLink()
    host.connect(link, hello())
    old = paint(host, link)
    host.launch({})
    host.gesture(link, gesture(1, old))
    host.calibrate(True)
    pattern = paint(host, link)
    assert host.state() is None
    host.gesture(link, gesture(2, pattern))
    assert [probe.number for probe in host.status().probes] == [2]
    host.calibrate(False)
    host.gesture(link, gesture(3, pattern))
    new = paint(host, link)
    assert host.state()["touches"] == 0  # type: ignore[index]
    host.gesture(link, gesture(4, new))
    paint(host, link)
    assert host.state()["touches"] == 1  # type: ignore[index]


def test_a_page_is_not_visible_while_hidden_lost_or_just_reconnected(host: PageApp) -> None:
    link = FakeLink()
    assert host.status().visibility is PageVisibility.LOST
    host.connect(link, hello())
    paint(host, link)
    host.set_visible(link, False)
    assert host.status().visibility is PageVisibility.HIDDEN
    host.set_visible(link, True)
    assert host.status().visibility is PageVisibility.VISIBLE
    host.disconnect(link)
    assert host.status().visibility is PageVisibility.LOST
    host.connect(link, hello())
    assert host.status().visibility is PageVisibility.LOST
    paint(host, link)
    host.set_visible(link, False)
    host.disconnect(link)
    assert host.status().visibility is PageVisibility.HIDDEN, "its last word"


def test_an_app_that_refuses_an_extra_keeps_its_state(host: PageApp) -> None:
    link = FakeLink()
    host.connect(link, hello())
    paint(host, link)
    before = host.state()
    with pytest.raises(ValueError, match="refuse=now"):
        host.launch({"refuse": "now"})
    assert host.state() == before


@pytest.mark.parametrize("method", ["touch", "render", "state"])
def test_an_app_that_raises_is_stopped(method: str, caplog: pytest.LogCaptureFixture) -> None:
    app, link = ProbeApp(), FakeLink()
    host = PageApp(app)
    host.launch({})
    host.connect(link, hello())
    paint(host, link)

    def fail(*_: object) -> bool:
        raise ZeroDivisionError

    setattr(app, method, fail)
    frame = host.status().number
    host.touch(0.5, 0.25)
    drawn = host.draw()
    host.paint(link, drawn.number)
    assert not host.status().running
    assert host.state() is None
    assert drawn.number > frame
    assert not drawn.picture.any()
    assert "org.agentrl.probe crashed" in caplog.text


def test_a_call_to_a_hung_app_times_out() -> None:
    begun, free = threading.Event(), threading.Event()

    class Hanging(ProbeApp):
        def touch(self, x: float, y: float) -> bool:
            begun.set()
            return free.wait(60)

    host = PageApp(Hanging(), deadline_s=0.05)
    host.launch({})
    thread = threading.Thread(target=host.touch, args=(0.5, 0.5))
    thread.start()
    assert begun.wait(10)
    with pytest.raises(DeviceTimeout, match=r"did not return from a call within 0\.05 s"):
        host.state()
    free.set()
    thread.join(10)
    assert host.status().running


def test_waiting_returns_the_status_or_times_out_with_the_message(host: PageApp) -> None:
    link = FakeLink()
    threading.Timer(0.05, lambda: host.connect(link, hello())).start()
    assert host.wait(lambda status: status.connected, 10, "no page").connected
    with pytest.raises(DeviceTimeout, match=r"org.agentrl.probe: it did not paint \(after 0.0 s\)"):
        host.wait(lambda status: status.settled, 0.01, "it did not paint")


def test_page_addresses_are_unique_and_unguessable() -> None:
    tokens = {PageApp(ProbeApp()).token for _ in range(50)}
    assert len(tokens) == 50
    assert min(map(len, tokens)) >= 32


def test_time_passes_in_whole_ticks_while_the_page_is_visible() -> None:
    host, link = PageApp(ToyApp()), FakeLink()
    host.launch({"clock": "running"})
    host.connect(link, hello())
    host.touch(0.1, 0.5)
    assert host.pass_time(10.0) > 0, "nothing is painted yet"
    paint(host, link)
    for now_s, ticks in ((10.0, 0), (10.03, 1), (10.05, 2), (10.2, 10)):
        assert host.pass_time(now_s) == 0.02
        paint(host, link)
        state = host.state()
        assert state is not None
        assert (state["ticks"], state["touches"]) == (ticks, 1)
    host.set_visible(link, False)
    host.pass_time(99.0)
    host.set_visible(link, True)
    host.pass_time(99.0)
    paint(host, link)
    state = host.state()
    assert state is not None
    assert state["ticks"] == 10
