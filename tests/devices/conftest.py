import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from agentrl.devices import Deadlines
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb_phone import AdbPhone
from virtual_phone.apps.probe_app import ProbeApp
from virtual_phone.phone_host_process import PhoneServer
from virtual_phone.virtual_phone import VirtualPhone

_OUR_MARK = re.compile(r"==[0-9a-f]{16}==\d+")
_OF_WINDOW = ("dumpsys window displays", "grep -E ^ *m(CurrentFocus|FocusedApp)=")


@dataclass
class WatchedPhone:
    """A phone in this process, so that what its shell ran can be read."""

    phone: VirtualPhone
    serial: str

    def ran(self) -> list[tuple[str, ...]]:
        """The commands that its shell ran since the last call, our own marks and `WINDOW` apart."""
        seen = list(self.phone.command_history)
        self.phone.command_history.clear()
        seen = [command for command in seen if " ".join(command) not in _OF_WINDOW]
        return [c for c in seen if not (c[0] == "echo" and _OUR_MARK.fullmatch(" ".join(c[1:])))]


@pytest.fixture(scope="module")
def virtual_serial(adb_server: AdbServer, unused_serials: Iterator[str]) -> Iterator[str]:
    """The serial of a phone with the probe on it; effects come at once."""
    serial = next(unused_serials)
    yield serial
    adb_server.disconnect(serial)


@pytest.fixture(scope="module")
def watched_phone() -> Iterator[WatchedPhone]:
    found: list[WatchedPhone] = []
    ready, loop = threading.Event(), asyncio.new_event_loop()

    async def start() -> PhoneServer:
        phone = VirtualPhone([ProbeApp()], tempo="quick")
        server = PhoneServer(phone)
        found.append(WatchedPhone(phone=phone, serial=f"127.0.0.1:{server.port}"))
        return server

    def work() -> None:
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(start())
        ready.set()
        loop.run_forever()
        server.close()
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(20)
    yield found[0]
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20)


@pytest.fixture
def opened(adb_server: AdbServer) -> Iterator[Callable[..., AdbPhone]]:
    """Opens phones by any driver; closes them and has the server forget them at the end."""
    phones: list[AdbPhone] = []

    def open_phone(serial: str, driver: str = "adbutils", **deadlines: float) -> AdbPhone:
        server = AdbServer(port=adb_server.port, driver=driver)
        phones.append(AdbPhone(server, serial, Deadlines(**deadlines)))
        return phones[-1]

    yield open_phone
    for phone in phones:
        phone.close()
        adb_server.disconnect(phone.serial)
