import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np
import pytest
from websockets.exceptions import (
    ConnectionClosed,
    ConnectionClosedError,
    ConnectionClosedOK,
    InvalidStatus,
)
from websockets.sync.client import ClientConnection, connect

from agentrl.errors import DeviceError
from agentrl.phone_page import PageApp, PageServer, PageVisibility, page_server, page_socket
from tests.phone_page.test_page_messages import GESTURE, HELLO
from virtual_phone.apps.probe_app import ProbeApp

Dial = Callable[..., ClientConnection]


@pytest.fixture
def host(server: PageServer) -> Iterator[PageApp]:
    host = PageApp(ProbeApp())
    server.add(host)
    host.launch({})
    yield host
    host.drop()


class FakePage:
    """What a page's script does, step by step."""

    def __init__(self, socket: ClientConnection, name: str = "0") -> None:
        self.socket = socket
        self.say(**{**HELLO, "page": name * 32})
        self.welcome = self.hear()

    def say(self, **message: object) -> None:
        self.socket.send(json.dumps(message))

    def hear(self) -> Any:
        """The next message, beats apart; a frame as bytes."""
        while True:
            heard = self.socket.recv(10)
            message = heard if isinstance(heard, bytes) else json.loads(heard)
            if message != {"type": "beat"}:
                return message

    def closing(self) -> int:
        """The code that this side receives when the other closes the connection."""
        with contextlib.suppress(ConnectionClosedOK):
            try:
                while True:
                    self.hear()
            except ConnectionClosedError as closed:
                return closed.rcvd.code if closed.rcvd is not None else 1006
        return 1000

    def frame(self) -> tuple[int, bytes]:
        """The number of the next frame, and its PNG."""
        heard = self.hear()
        assert isinstance(heard, bytes)
        return int.from_bytes(heard[:4], "big"), heard[24:]

    def paint(self) -> int:
        number, _ = self.frame()
        self.say(type="painted", frame=number)
        return number


@pytest.fixture
def dial(server: PageServer) -> Iterator[Dial]:
    """Opens sockets to the server, as a page of its own does."""
    with contextlib.ExitStack() as sockets:

        def dial(token: str, **options: Any) -> ClientConnection:
            options = {"origin": f"http://localhost:{server.port}", **options}
            address = f"ws://localhost:{server.port}/{token}/socket"
            return sockets.enter_context(connect(address, close_timeout=0.1, **options))

        yield dial


def get(server: PageServer, path: str, **headers: str) -> http.client.HTTPResponse:
    caller = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    caller.request("GET", path, headers={"Host": f"localhost:{server.port}", **headers})
    answer = caller.getresponse()
    answer.body = answer.read()  # type: ignore[attr-defined]
    caller.close()
    return answer


def wait_for_sight(host: PageApp, sight: PageVisibility) -> None:
    host.wait(lambda status: status.visibility is sight, 10, f"it is not {sight}")


def test_only_the_state_of_painted_frames_is_published(
    server: PageServer, dial: Dial, host: PageApp
) -> None:
    page = FakePage(dial(host.token))
    assert page.welcome == {"type": "welcome", "handled": 0, "replaced": False}
    number, png = page.frame()
    picture = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
    shown = host.draw()
    assert np.array_equal(picture, shown.picture)
    assert host.state() is None
    page.say(type="painted", frame=number)
    host.wait(lambda status: status.settled, 10, "painted")
    page.say(**{**GESTURE, "number": 1, "frame": number, "moved": 0})
    assert page.hear() == {"type": "handled", "number": 1}
    assert host.state()["touches"] == 0  # type: ignore[index]
    page.paint()
    host.wait(lambda status: status.settled, 10, "painted")
    assert host.state()["touches"] == 1  # type: ignore[index]


def test_a_slow_page_skips_to_the_newest_frame(
    server: PageServer, dial: Dial, host: PageApp
) -> None:
    page = FakePage(dial(host.token))
    first, _ = page.frame()
    for _ in range(5):
        host.touch(0.5, 0.25)
    page.say(type="painted", frame=first)
    second, _ = page.frame()
    assert second == first + 5 == host.status().number


def test_a_page_that_lies_about_what_it_painted_publishes_nothing(
    server: PageServer, dial: Dial, host: PageApp
) -> None:
    page = FakePage(dial(host.token))
    number, _ = page.frame()
    for lie in (number - 1, number + 1, 0, 2**31):
        page.say(type="painted", frame=lie)
    page.say(**{**GESTURE, "number": 1, "frame": number, "moved": 0})
    assert page.hear() == {"type": "handled", "number": 1}
    assert host.state() is None


def test_pages_share_a_server_but_never_see_another_game(server: PageServer, dial: Dial) -> None:
    hosts = [PageApp(ProbeApp()) for _ in range(12)]
    pages = []
    for number, host in enumerate(hosts):
        server.add(host)
        host.launch({"phone": str(number)})
        pages.append(FakePage(dial(host.token)))
    for page in pages:
        page.paint()
    for number, host in enumerate(hosts):
        host.wait(lambda status: status.settled, 10, "painted")
        assert host.state()["extras"] == {"phone": str(number)}  # type: ignore[index]
        host.drop()


HOSTILE = [
    "junk", "", "{}", "[[]]", "\x00", "é" * 100, json.dumps({**HELLO, "more": 1}),
    json.dumps({"type": "painted", "frame": 1}), json.dumps(GESTURE), b"bytes", b"\x00" * 1000,
    "[" * 2000, "x" * 3000,
]  # fmt: skip


@pytest.mark.parametrize("message", HOSTILE, ids=range(len(HOSTILE)))
def test_an_invalid_first_message_is_refused_and_logged(
    server: PageServer,
    dial: Dial,
    host: PageApp,
    message: str | bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    page = FakePage(dial(host.token))
    page.paint()
    wait_for_sight(host, PageVisibility.VISIBLE)
    hostile = dial(host.token)
    hostile.send(message)
    with pytest.raises(ConnectionClosed) as closed:
        hostile.recv(10)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4400
    assert "because of a bad message" in caplog.text
    assert host.token not in caplog.text
    assert host.status().settled
    page.say(type="visible", visible=False)
    wait_for_sight(host, PageVisibility.HIDDEN)


@pytest.mark.parametrize(
    "message",
    [json.dumps(HELLO), json.dumps({**GESTURE, "number": 2}), '{"type": "nothing"}', b"\x01"],
)
def test_an_invalid_later_message_ends_the_connection_but_not_the_game(
    server: PageServer,
    dial: Dial,
    host: PageApp,
    message: str | bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    page = FakePage(dial(host.token))
    page.paint()
    wait_for_sight(host, PageVisibility.VISIBLE)
    state = host.state()
    page.socket.send(message)
    assert page.closing() == 4400
    wait_for_sight(host, PageVisibility.LOST)
    assert "because of a bad message" in caplog.text
    assert host.state() == state


def test_a_huge_message_is_refused_without_being_read(
    server: PageServer, dial: Dial, host: PageApp, caplog: pytest.LogCaptureFixture
) -> None:
    page = FakePage(dial(host.token))
    page.paint()
    wait_for_sight(host, PageVisibility.VISIBLE)
    with contextlib.suppress(ConnectionClosed):
        page.socket.send("x" * 1_000_000)
    assert page.closing() in (1006, 1009)
    wait_for_sight(host, PageVisibility.LOST)
    assert "too long" in caplog.text


def test_a_page_that_sends_nothing_is_disconnected(
    server: PageServer,
    dial: Dial,
    host: PageApp,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(page_socket, "_HELLO_S", 0.05)
    with pytest.raises(ConnectionClosed) as closed:
        dial(host.token).recv(10)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4500
    assert "closed the page" in caplog.text


def test_a_page_that_stops_answering_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_server, "_PING_S", 0.2)
    monkeypatch.setattr(page_server, "_PONG_S", 0.2)
    host = PageApp(ProbeApp())
    with (
        PageServer() as server,
        socket.create_connection(("127.0.0.1", server.port), 10) as silent,
    ):
        server.add(host)
        silent.sendall(
            f"GET /{host.token}/socket HTTP/1.1\r\nHost: localhost:{server.port}\r\n"
            f"Origin: http://localhost:{server.port}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        assert silent.recv(4096).startswith(b"HTTP/1.1 101 ")
        hello = json.dumps(HELLO).encode()
        assert len(hello) < 126
        silent.sendall(bytes([0x81, 0x80 | len(hello)]) + bytes(4) + hello)  # masked with zeros
        host.wait(lambda status: status.size is not None, 10, "it did not connect")
        host.wait(lambda status: not status.connected, 10, "it was not given up")


def test_a_hung_app_does_not_block_other_pages(
    server: PageServer, dial: Dial, host: PageApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_socket, "_CALL_S", 0.2)
    free = threading.Event()

    class Hanging(ProbeApp):
        def touch(self, x: float, y: float) -> bool:
            return free.wait(60)

    hanging = PageApp(Hanging(), deadline_s=60)
    server.add(hanging)
    hanging.launch({})
    stuck, page = FakePage(dial(hanging.token)), FakePage(dial(host.token))
    frame = stuck.paint()
    stuck.say(**{**GESTURE, "frame": frame, "moved": 0})
    page.paint()
    wait_for_sight(host, PageVisibility.VISIBLE)
    assert stuck.closing() == 4500
    free.set()
    wait_for_sight(hanging, PageVisibility.LOST)
    assert FakePage(dial(hanging.token)).welcome["handled"] == 1


@pytest.mark.parametrize("token", ["0" * 32, "x", "page.js", "..", "%2e%2e"])
def test_a_request_without_the_token_gets_nothing(
    server: PageServer, dial: Dial, host: PageApp, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        dial(token)
    assert refused.value.response.status_code in (403, 404)
    if token != "page.js":
        assert get(server, f"/{token}").status == 404
    assert host.status().connected is False


@pytest.mark.parametrize(
    "origin",
    [
        None, "null", "https://localhost", "http://localhost", "http://localhost:1",
        "http://evil.example", "http://127.0.0.1",
    ],
)  # fmt: skip
def test_a_page_from_elsewhere_is_refused_and_logged(
    server: PageServer,
    dial: Dial,
    host: PageApp,
    origin: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        dial(host.token, origin=origin)
    assert refused.value.response.status_code == 403
    assert "refused a page request: the request comes from a page of another server" in caplog.text
    assert not host.status().connected


def test_another_host_name_is_refused(
    server: PageServer, host: PageApp, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("evil.example", f"evil.example:{server.port}", "", "localhost.evil.example:80"):
        assert get(server, f"/{host.token}", Host=name).status == 403
        assert "refused a page request: not a name of this server" in caplog.text
        caplog.clear()
    assert get(server, f"/{host.token}").status == 200
    assert get(server, f"/{host.token}", Origin="http://evil.example").status == 403


def test_a_page_loads_nothing_from_elsewhere_and_contains_no_secret(
    server: PageServer, host: PageApp
) -> None:
    host.launch({"words": "<script>alert(1)</script>"})
    answer = get(server, f"/{host.token}")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline'; connect" in policy
    assert "script-src 'self'" in policy
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    other = PageApp(ProbeApp())
    server.add(other)
    assert get(server, f"/{other.token}").body == answer.body  # type: ignore[attr-defined]
    assert b"alert" not in answer.body  # type: ignore[attr-defined]
    script = get(server, "/page.js")
    assert (script.status, script.headers["Content-Type"]) == (
        200,
        "text/javascript; charset=utf-8",
    )


def test_the_server_listens_only_on_loopback(server: PageServer) -> None:
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", server.port), 5)


def test_a_port_in_use_is_reported(server: PageServer) -> None:
    with pytest.raises(DeviceError, match=f"cannot listen on port {server.port}"):
        PageServer(port=server.port).start()


def test_a_missing_server_library_is_reported_with_its_fix() -> None:
    code = "import sys; sys.modules['uvicorn'] = None; from agentrl.phone_page import PageServer"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert "ConfigError: showing apps on real phones through a page needs uvicorn" in done.stderr
    assert "pip install 'agentrl-screens[page]'" in done.stderr


def test_a_server_ends_with_its_process() -> None:
    code = (
        "from agentrl.phone_page import PageServer; server = PageServer(); server.start();"
        "print(server.port)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=100, check=True, env=dict(os.environ),
    )  # fmt: skip
    start = time.monotonic()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(done.stdout)), 5)
    assert time.monotonic() - start < 5
