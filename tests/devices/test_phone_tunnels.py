import gc
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from agentrl.devices.adb_phone import AdbPhone
from agentrl.errors import DeviceError
from agentrl.extension_points import DRIVER

pytestmark = pytest.mark.adb


class Greeter(BaseHTTPRequestHandler):
    """Answers every request with the same words."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    """Where this machine answers."""
    with HTTPServer(("127.0.0.1", 0), Greeter) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("driver", DRIVER.names())
def test_a_phone_reaches_this_machine_through_its_tunnel(
    virtual_serial: str, opened: Callable[..., AdbPhone], port: int, driver: str
) -> None:
    phone = opened(virtual_serial, driver)
    ask = ("curl", "-s", "http://127.0.0.1:8123/")
    assert phone.batch(ask)[0].code != 0
    phone.reverse("tcp:8123", f"tcp:{port}")
    assert phone.shell(*ask) == "hello"
    phone.reverse("tcp:8123", f"tcp:{port}")
    assert phone.shell(*ask) == "hello", "it may be asked for again"
    phone.reverse_remove("tcp:8123")
    assert phone.batch(ask)[0].code != 0
    phone.reverse_remove("tcp:8123")


@pytest.mark.parametrize("driver", DRIVER.names())
def test_this_machine_reaches_an_endpoint_on_the_phone(
    virtual_serial: str, opened: Callable[..., AdbPhone], port: int, driver: str
) -> None:
    phone = opened(virtual_serial, driver)
    phone.reverse("tcp:8124", f"tcp:{port}")
    try:
        with phone.connect("tcp:8124") as link:
            gc.collect()  # the libraries' own objects close what is left to them
            link.sendall(b"GET / HTTP/1.0\r\n\r\n")
            link.settimeout(10)
            assert b"".join(iter(lambda: link.recv(1 << 16), b"")).endswith(b"hello")
    finally:
        phone.reverse_remove("tcp:8124")
    with pytest.raises(DeviceError, match="tcp:8124"):
        phone.connect("tcp:8124")


@pytest.mark.parametrize("driver", DRIVER.names())
def test_a_tunnel_that_the_phone_refuses_says_why(
    virtual_serial: str, opened: Callable[..., AdbPhone], driver: str
) -> None:
    with pytest.raises(DeviceError, match=r"reverse:forward:tcp:99999;tcp:1: .*bind"):
        opened(virtual_serial, driver).reverse("tcp:99999", "tcp:1")


@pytest.mark.parametrize(
    "end", ["8000", "tcp:", "tcp:1;tcp:2", "tcp:x", "dev:/dev/tty", "local:a b", "tcp:1\n", ""]
)
def test_invalid_tunnel_endpoints_are_refused(
    virtual_serial: str, opened: Callable[..., AdbPhone], end: str
) -> None:
    phone = opened(virtual_serial)
    with pytest.raises(ValueError, match="is not a tunnel endpoint"):
        phone.reverse(end, "tcp:1")
    with pytest.raises(ValueError, match="is not a tunnel endpoint"):
        phone.reverse("tcp:1", end)
    with pytest.raises(ValueError, match="is not a tunnel endpoint"):
        phone.reverse_remove(end)
