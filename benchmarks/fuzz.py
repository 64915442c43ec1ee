"""Fuzz the ADB packet parser and a running virtual phone with a million packets each.

    python benchmarks/fuzz.py

Packets are random, valid, or valid and then corrupted. They open existing and missing services,
reply to open and closed streams, and arrive split at arbitrary positions. The benchmark prints
packets per second, what the phone refused and why, and its memory before and after. It fails on
anything other than a refusal, or if memory grows.
"""

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import random
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from virtual_phone.apps.probe_app import ProbeApp
from virtual_phone.protocol import adb_packets, adb_services
from virtual_phone.protocol.adb_packets import (
    AUTH,
    CLSE,
    CNXN,
    OKAY,
    OPEN,
    WRTE,
    Packet,
    PacketParser,
    ProtocolError,
)
from virtual_phone.protocol.device_connection import DeviceConnection
from virtual_phone.virtual_phone import VirtualPhone

_KINDS = (AUTH, CLSE, CNXN, OKAY, OPEN, WRTE)
_SERVICES = (
    "shell:true", "shell:cat", "shell,v2,raw:cat", "shell:", "shell:yes", "shell:logcat",
    "shell:echo 'open", "shell:$(((((", "shell,v2:input tap 30 30", "shell:input text x",
    "exec:screencap", "exec:screencap -p", "framebuffer:", "sync:", "sync:", "sync:",
    "reverse:forward:tcp:0;tcp:9", "reverse:list-forward", "reverse:killforward-all", "reverse:",
    "tcp:40000", "tcp:40001", "tcp:x", "localabstract:missing", "root:",
    "shell:cmd agentrl load", "shell:pm install -S 99999",
    "shell:sleep 0.001; exit 3", "shell:dumpsys | grep -E '(a*)*b'", "host:version", "", "\xff:",
)  # fmt: skip
_SYNC = (b"STAT", b"LST2", b"LIST", b"RECV", b"SEND", b"DATA", b"DONE", b"QUIT")
_BATCH = 200
_MOST_IDS = 100
_LARGEST_GROWTH_MB = 64.0


@dataclass
class Ledger:
    """Results of one target."""

    packets: int = 0
    connections: int = 0
    seconds: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    bugs: Counter[str] = field(default_factory=Counter)
    memory_mb: list[float] = field(default_factory=list)


class Client:
    """Generates packets, reproducibly by seed."""

    def __init__(self, seed: int) -> None:
        """Start the packet sequence of a seed."""
        self._random = random.Random(seed)

    def packets(self, count: int) -> Iterator[bytes]:
        """Generate `count` packets as bytes."""
        for _ in range(count):
            yield self._packet()

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Split bytes at random positions."""
        at = 0
        while at < len(data):
            step = self._random.choice((1, 7, 24, 300, 70_000))
            yield data[at : at + step]
            at += step

    def _packet(self) -> bytes:
        source = self._random
        kind = source.choices(("open", "data", "okay", "close", "any"), (20, 35, 30, 10, 5))[0]
        local, remote = source.randint(1, _MOST_IDS), source.randint(1, _MOST_IDS)
        if kind == "open":
            service = source.choice(_SERVICES).encode("latin-1") + b"\0"
            packet = Packet(command=OPEN, arg0=local, arg1=0, payload=service)
        elif kind == "data":
            packet = Packet(command=WRTE, arg0=local, arg1=remote, payload=self._data())
        elif kind == "any":
            command = source.choice(_KINDS)
            numbers = source.getrandbits(32), source.getrandbits(32)
            packet = Packet(command=command, arg0=numbers[0], arg1=numbers[1], payload=b"x" * 9)
        else:
            packet = Packet(command=OKAY if kind == "okay" else CLSE, arg0=local, arg1=remote)
        return self._damaged(adb_packets.encode(packet))

    def _data(self) -> bytes:
        source = self._random
        if source.random() < 0.5:
            length = source.choice((0, 3, 10, 2000, 2**32 - 1))
            return source.choice(_SYNC) + length.to_bytes(4, "little") + source.randbytes(10)
        return source.randbytes(source.choice((0, 1, 5, 30, 300)))

    def _damaged(self, data: bytes) -> bytes:
        """Corrupt only a few packets, as a phone disconnects at the first invalid packet."""
        source = self._random
        if source.random() > 0.002:
            return data
        how = source.randrange(4)
        if how == 0:
            return source.randbytes(source.randint(1, 60))
        if how == 1:
            return data[: source.randrange(len(data))]
        at = source.randrange(len(data))
        changed = bytearray(data)
        changed[at] ^= 1 << source.randrange(8)
        if how == 2:
            changed[12:16] = source.getrandbits(32).to_bytes(4, "little")
        return bytes(changed)


def memory_mb() -> float:
    """Return this process's memory in MB after garbage collection."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def reason(error: Exception) -> str:
    """Describe an error, replacing numbers with N."""
    return re.sub(r"0x[0-9a-f]+|\d+", "N", f"{type(error).__name__}: {error}")


def fuzz_parser(count: int, seed: int, end_s: float) -> Ledger:
    """Fuzz the parser alone."""
    ledger, client, parser = Ledger(), Client(seed), PacketParser()
    start_s = time.monotonic()
    while ledger.packets < count and time.monotonic() < end_s:
        data = b"".join(client.packets(min(_BATCH, count - ledger.packets)))
        for piece in client.pieces(data):
            try:
                for _ in parser.feed(piece):
                    pass
            except ProtocolError as error:
                ledger.refused[reason(error)] += 1
                parser = PacketParser()
            except Exception as error:
                ledger.bugs[reason(error)] += 1
                parser = PacketParser()
        ledger.packets += min(_BATCH, count - ledger.packets)
        _note_memory(ledger, count)
    ledger.seconds = time.monotonic() - start_s
    return ledger


class Bugs(logging.Handler):
    """Counts log records: refusals, and the phone's own errors."""

    def __init__(self, ledger: Ledger) -> None:
        """Count into a ledger."""
        super().__init__()
        self._ledger = ledger

    def emit(self, record: logging.LogRecord) -> None:
        """Count one log record."""
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            bug = reason(error) if isinstance(error, Exception) else repr(error)
            self._ledger.bugs[bug] += 1
        else:
            self._ledger.refused[re.sub(r"0x[0-9a-f]+|\d+", "N", record.getMessage())] += 1


async def fuzz_phone(count: int, seed: int, end_s: float) -> Ledger:
    """Fuzz a running phone over successive connections."""
    ledger, client = Ledger(), Client(seed)
    logging.getLogger("virtual_phone").addHandler(Bugs(ledger))
    logging.getLogger("virtual_phone").propagate = False
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(
        lambda _, context: ledger.bugs.update([str(context.get("exception"))])
    )
    phone = VirtualPhone([ProbeApp()], size=(72, 128), tempo="quick")
    phone.tasks.launch(ProbeApp.package, {})
    start_s = time.monotonic()
    while ledger.packets < count and time.monotonic() < end_s:
        await _one_connection(phone, client, ledger, count, end_s)
        ledger.connections += 1
    ledger.seconds = time.monotonic() - start_s
    return ledger


async def _one_connection(
    phone: VirtualPhone, client: Client, ledger: Ledger, count: int, end_s: float
) -> None:
    """Send packets until the phone closes the connection."""
    ours, theirs = _pair()
    theirs_closed = asyncio.Event()

    def on_lost(connection: DeviceConnection) -> None:
        phone.network.close_all(connection)
        theirs_closed.set()

    connection = DeviceConnection(
        theirs,
        adb_services.banner(phone),
        lambda stream, name: adb_services.open_service(phone, stream, name),
        on_lost,
    )
    loop = asyncio.get_running_loop()
    reading = loop.create_task(_read(ours))
    greeting = Packet(command=CNXN, arg0=adb_packets.VERSION, arg1=1 << 20, payload=b"host::")
    data = adb_packets.encode(greeting)
    try:
        while ledger.packets < count and not theirs_closed.is_set() and time.monotonic() < end_s:
            num_packets = min(_BATCH, count - ledger.packets)
            data += b"".join(client.packets(num_packets))
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(loop.sock_sendall(ours, data), 10)
            ledger.packets += num_packets
            data = b""
            _note_memory(ledger, count)
            await asyncio.sleep(0)
    finally:
        reading.cancel()
        connection.close()
        ours.close()
        await asyncio.sleep(0)


def _pair() -> tuple[socket.socket, socket.socket]:
    """Create a TCP connection and return both ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    ours.setblocking(False)
    return ours, theirs


async def _read(sock: socket.socket) -> None:
    """Read and discard everything that the phone sends."""
    loop, buffer = asyncio.get_running_loop(), bytearray(1 << 20)
    with contextlib.suppress(OSError):
        while await loop.sock_recv_into(sock, buffer):
            pass


def _note_memory(ledger: Ledger, count: int) -> None:
    """Sample memory ten times; by the first sample, all code has run at least once."""
    if ledger.packets * 10 // count > len(ledger.memory_mb):
        ledger.memory_mb.append(memory_mb())


def table(ledgers: dict[str, Ledger]) -> Table:
    """Build the printed table."""
    rows = Table("what", *ledgers, title="Random, valid and corrupted packets")
    rows.add_row("packets", *(f"{one.packets:,}" for one in ledgers.values()))
    rows.add_row("packets/s", *(f"{one.packets / one.seconds:,.0f}" for one in ledgers.values()))
    rows.add_row("connections", *(f"{one.connections:,}" for one in ledgers.values()))
    memory = [" ".join(f"{mb:.0f}" for mb in one.memory_mb) for one in ledgers.values()]
    rows.add_row("memory after each tenth of the packets, MB", *memory)
    rows.add_row("growth, MB", *(f"{growth_mb(one):.1f}" for one in ledgers.values()))
    for kind in sorted({kind for one in ledgers.values() for kind in one.refused}):
        rows.add_row(kind, *(f"{one.refused[kind]:,}" for one in ledgers.values()))
    for bug in sorted({bug for one in ledgers.values() for bug in one.bugs}):
        rows.add_row(f"BUG {bug}", *(f"{one.bugs[bug]:,}" for one in ledgers.values()))
    return rows


def growth_mb(ledger: Ledger) -> float:
    """Return the memory growth from the first tenth, when everything is loaded, to the end."""
    return ledger.memory_mb[-1] - ledger.memory_mb[0] if ledger.memory_mb else 0.0


def main() -> None:
    """Fuzz and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--packets", type=int, default=1_000_000, help="packets for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=900.0, help="time limit for each target")
    options = parser.parse_args()
    count, seed = options.packets, options.seed
    ledgers = {
        "parser": fuzz_parser(count, seed, time.monotonic() + options.seconds),
        "phone": asyncio.run(fuzz_phone(count, seed, time.monotonic() + options.seconds)),
    }
    Console(width=110).print(table(ledgers))
    for name, ledger in ledgers.items():
        if ledger.bugs or ledger.packets < count or growth_mb(ledger) > _LARGEST_GROWTH_MB:
            sys.exit(f"{name}: failed, was too slow, or its memory grew")


if __name__ == "__main__":
    main()
