"""A client that sends arbitrary packets to a phone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import ClassVar

from virtual_phone.apps.probe_app import ProbeApp
from virtual_phone.protocol import adb_packets
from virtual_phone.protocol.adb_packets import (
    CLSE,
    CNXN,
    OKAY,
    OPEN,
    WRTE,
    Packet,
    PacketParser,
)
from virtual_phone.protocol.phone_server import PhoneServer
from virtual_phone.virtual_phone import VirtualPhone

PATIENCE_S = 30


class PacketClient:
    """A connection to a phone; `serving` closes connections that a test leaves open."""

    opened: ClassVar[list["PacketClient"]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = PacketParser()
        self._packets: list[Packet] = []

    @staticmethod
    async def to(port: int, *, greet: bool = True) -> "PacketClient":
        wire = PacketClient(*await asyncio.open_connection("127.0.0.1", port))
        PacketClient.opened.append(wire)
        if greet:
            wire.send(CNXN, adb_packets.VERSION, adb_packets.MAX_PAYLOAD, b"host::")
            assert (await wire.next()).command == CNXN
        return wire

    def send(self, command: int, arg0: int, arg1: int, payload: bytes = b"") -> None:
        packet = Packet(command=command, arg0=arg0, arg1=arg1, payload=payload)
        self._writer.write(adb_packets.encode(packet))

    def raw(self, data: bytes) -> None:
        self._writer.write(data)

    async def raw_bytes(self) -> bytes:
        """Return the received bytes without parsing them."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.read(1 << 16)

    async def next(self) -> Packet:
        """Return the next packet; raise EOFError if the phone has closed the connection."""
        while not self._packets:
            async with asyncio.timeout(PATIENCE_S):
                chunk = await self._reader.read(1 << 16)
            if not chunk:
                raise EOFError
            self._packets += self._parser.feed(chunk)
        return self._packets.pop(0)

    async def is_closed(self) -> bool:
        """Wait until the phone closes the connection."""
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                await self.next()
        return True

    async def ask(self, service: str, data: bytes = b"", local: int = 7) -> bytes:
        """Open a service, send data, and read all its output."""
        self.send(OPEN, local, 0, service.encode() + b"\0")
        received, remote = b"", 0
        while True:
            packet = await self.next()
            if packet.arg1 != local:
                continue
            if packet.command == OKAY:
                remote = packet.arg0
                if data:
                    self.send(WRTE, local, remote, data)
                    data = b""
            elif packet.command == WRTE:
                received += packet.payload
                self.send(OKAY, local, remote)
            elif packet.command == CLSE:
                self.send(CLSE, local, remote)
                return received

    def close(self) -> None:
        self._writer.close()

    async def closed(self) -> None:
        self.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


@contextlib.asynccontextmanager
async def serving(**options: object) -> AsyncIterator[PhoneServer]:
    """Run a listening phone with the probe app."""
    phone = VirtualPhone([ProbeApp()], size=(72, 128), tempo="quick")
    server = PhoneServer(phone, **options)  # type: ignore[arg-type]
    try:
        yield server
    finally:
        server.close()
        for wire in PacketClient.opened:
            await wire.closed()
        PacketClient.opened.clear()
