import asyncio
import threading
from collections.abc import Coroutine, Iterator

import pytest

from agentrl.devices.adb import AdbServer
from agentrl.errors import DeviceError, DeviceTimeout
from agentrl.page import AdbTunnel
from agentrl.phone import services
from agentrl.phone.host import PhoneServer
from agentrl.phone.phone import Phone
from agentrl.phone.transport import Stream

pytestmark = pytest.mark.adb


class ReversingPhone:
    """A virtual phone in this process that answers `reverse:` as adbd does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.answer = b"OKAY"
        self._usual = services.open_service
        monkeypatch.setattr(services, "open_service", self._open)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)
        self.serial = f"127.0.0.1:{self._server.port}"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> PhoneServer:
        return PhoneServer(Phone())

    def _open(self, phone: Phone, stream: Stream, name: str) -> Coroutine[None, None, None] | None:
        if not name.startswith("reverse:"):
            return self._usual(phone, stream, name)
        self.asked.append(name)
        return self._reply(stream)

    async def _reply(self, stream: Stream) -> None:
        if self.answer:
            stream.write(self.answer)
        else:
            await asyncio.sleep(60)


@pytest.fixture
def phone(adb_server: AdbServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReversingPhone]:
    phone = ReversingPhone(monkeypatch)
    adb_server.connect(phone.serial)
    yield phone
    adb_server.disconnect(phone.serial)
    phone.close()


def test_a_tunnel_is_asked_of_the_phone(adb_server: AdbServer, phone: ReversingPhone) -> None:
    tunnel = AdbTunnel(adb_server, phone.serial)
    tunnel.reverse("tcp:8000", "tcp:9000")
    tunnel.reverse_remove("tcp:8000")
    assert phone.asked == ["reverse:forward:tcp:8000;tcp:9000", "reverse:killforward:tcp:8000"]


def test_a_phone_that_refuses_says_why(adb_server: AdbServer, phone: ReversingPhone) -> None:
    phone.answer = b"FAIL0013cannot bind to 8000"
    with pytest.raises(DeviceError, match="reverse:forward:tcp:8000;tcp:9000: cannot bind to 8000"):
        AdbTunnel(adb_server, phone.serial).reverse("tcp:8000", "tcp:9000")


def test_a_phone_that_does_not_answer_has_a_deadline(
    adb_server: AdbServer, phone: ReversingPhone
) -> None:
    phone.answer = b""
    with pytest.raises(DeviceTimeout, match=r"no answer within 0\.2 s"):
        AdbTunnel(adb_server, phone.serial, deadline_s=0.2).reverse("tcp:8000", "tcp:9000")


def test_a_phone_that_is_not_there_is_a_device_error(adb_server: AdbServer) -> None:
    with pytest.raises(DeviceError, match=r"127\.0\.0\.1:1 is not connected"):
        AdbTunnel(adb_server, "127.0.0.1:1").reverse("tcp:8000", "tcp:9000")
