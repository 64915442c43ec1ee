"""Latency of phones: ours beside adbutils, pure-python-adb and the adb program, in one run.

    python benchmarks/devices.py

Every way is measured in turn, round after round, against the same virtual phone at 720x1280.
"""

import argparse
import asyncio
import logging
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable

import adbutils
from rich.console import Console
from rich.table import Table

from agentrl.devices import Device, Tap, act_and_settle, open_source
from agentrl.devices.adb import AdbServer, find_adb

PROBE = "agentrl.phone.apps:ProbeApp"
PACKAGE, ACTIVITY = "org.agentrl.probe", ".Main"
Way = tuple[Callable[[], object], Callable[[], object]]
"""One command and one raw frame."""


def ways(device: Device, server: AdbServer) -> dict[str, Way]:
    """Every way to reach one phone."""
    serial = device.serial
    client = adbutils.AdbClient(host=server.host, port=server.port)
    theirs = client.device(serial)
    adb = [find_adb(), "-P", str(server.port), "-s", serial]

    def run(*arguments: str) -> bytes:
        return subprocess.run([*adb, *arguments], capture_output=True, check=True).stdout

    known: dict[str, Way] = {
        "ours": (lambda: device.shell("true"), device.screenshot),
        "adbutils": (
            lambda: theirs.shell("true"),
            lambda: theirs.shell("screencap", encoding=None),
        ),
        "adb subprocess": (lambda: run("shell", "true"), lambda: run("exec-out", "screencap")),
    }
    try:
        from ppadb.client import Client
    except ImportError:
        logging.warning("pure-python-adb is not installed: no row for it")
        return known
    pure = Client(host=server.host, port=server.port).device(serial)

    def raw_frame() -> bytes:
        connection = pure.create_connection()
        with connection:
            connection.send("exec:screencap")
            return bytes(connection.read_all())

    known["pure-python-adb"] = (lambda: pure.shell("true"), raw_frame)
    return known


def median_ms(seconds: list[float]) -> str:
    """Median as text, in milliseconds."""
    return f"{statistics.median(seconds) * 1000:.2f}"


def timed(act: Callable[[], object]) -> float:
    """Seconds that it takes."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def latency(device: Device, rounds: int) -> Table:
    """Median command and frame of every way, measured in turn."""
    known = ways(device, AdbServer.from_environment())
    seconds: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in known}
    for _ in range(rounds):
        for name, (command, frame) in known.items():
            seconds[name][0].append(timed(command))
            seconds[name][1].append(timed(frame))
    table = Table("way", "command, ms", "raw frame, ms", title=f"Medians of {rounds} rounds")
    for name, (commands, frames) in seconds.items():
        table.add_row(name, median_ms(commands), median_ms(frames))
    return table


def settle_seconds(device: Device, rounds: int) -> list[float]:
    """From a tap to its settled frame."""
    device.launch(PACKAGE, ACTIVITY, {})
    before, seconds = device.screenshot(), []
    for _ in range(rounds):
        settled = act_and_settle(device, Tap(0.5, 0.2), before=before, package=PACKAGE)
        assert settled.changed
        before = settled.frame
        seconds.append(settled.seconds)
    return seconds


async def frames_per_second(num_phones: int, seconds: float) -> float:
    """Of all phones together; each is read by a thread of its own."""
    with open_source(f"virtual:{num_phones}", apps=[PROBE], effect_delay_ms=(0, 0)) as pool:

        def read(device: Device) -> int:
            count, end = 0, time.monotonic() + seconds
            while time.monotonic() < end:
                device.screenshot()
                count += 1
            return count

        async def one() -> int:
            async with pool.lease(10) as device:
                return await asyncio.to_thread(read, device)

        start = time.monotonic()
        counts = await asyncio.gather(*(one() for _ in range(num_phones)))
        return sum(counts) / (time.monotonic() - start)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--phones", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    console = Console(width=100)
    more = Table("what", "value", title="And more")
    with open_source("virtual:1", apps=[PROBE], effect_delay_ms=(0, 0)) as pool:

        async def measure() -> None:
            async with pool.lease(10) as device:
                console.print(latency(device, options.rounds))
                told = median_ms(settle_seconds(device, options.rounds))
                more.add_row("tap -> settled frame, effects at once", f"{told} ms")

        asyncio.run(measure())
    rate = asyncio.run(frames_per_second(options.phones, options.seconds))
    more.add_row(f"frames/s, {options.phones} phones in one process", f"{rate:.0f}")
    more.add_row("machine", f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()}")
    console.print(more)


if __name__ == "__main__":
    main()
