"""Compare device latency with adbutils, pure-python-adb and the adb program.

    python benchmarks/devices.py

All methods alternate, in a random order per round, on the same virtual phone at 720x1280. Each
captures a few frames in a row, with a screen change before each frame so that captures cannot be
prepared in advance, and runs a few commands.
"""

import argparse
import asyncio
import functools
import logging
import random
import statistics
import subprocess
import time
from collections.abc import Callable

import adbutils
from conditions import conditions
from rich.console import Console
from rich.table import Table

from agentrl.devices import Device, Tap, act_and_settle, open_device, open_source
from agentrl.devices.adb import AdbServer, find_adb
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.capture_and_input_choice import mark_fastest
from agentrl.devices.capture_and_input_timing import measure_methods
from agentrl.extension_points import DRIVER

PROBE = "virtual_phone.apps.probe_app:ProbeApp"
PACKAGE, ACTIVITY = "org.agentrl.probe", ".Main"
OURS = "ours, by adbutils"
SCREENSHOT = "adbutils' screenshot()"
DELAY_MS = 100
IN_A_ROW = 5
"""Number of frames and commands before switching to the next method."""
Way = tuple[Callable[[], object] | None, Callable[[], object]]
"""Functions that run one command and capture one frame."""
Medians = dict[str, tuple[float | None, float]]
"""Milliseconds per command and per frame, by method."""


def ways(phones: dict[str, AdbPhone], server: AdbServer) -> dict[str, Way]:
    """Return all methods to access a phone."""
    known: dict[str, Way] = {}
    for driver, phone in phones.items():
        known[f"ours, by {driver}"] = (lambda p=phone: p.shell("true"), phone.screenshot)  # type: ignore[misc]
    serial = phones["adbutils"].serial
    client = adbutils.AdbClient(host=server.host, port=server.port)
    theirs = client.device(serial)
    adb = [find_adb(), "-P", str(server.port), "-s", serial]

    def run(*arguments: str) -> bytes:
        return subprocess.run([*adb, *arguments], capture_output=True, check=True).stdout

    known["adbutils"] = (
        lambda: theirs.shell("true"),
        lambda: theirs.shell("screencap", encoding=None),
    )
    known[SCREENSHOT] = (None, lambda: theirs.screenshot(error_ok=False))
    known["adb subprocess"] = (lambda: run("shell", "true"), lambda: run("exec-out", "screencap"))
    try:
        from ppadb.client import Client
    except ImportError:
        logging.warning("pure-python-adb is not installed and is skipped")
        return known
    pure = Client(host=server.host, port=server.port).device(serial)

    def raw_frame() -> bytes:
        connection = pure.create_connection()
        with connection:
            connection.send("exec:screencap")
            return bytes(connection.read_all())

    known["pure-python-adb"] = (lambda: pure.shell("true"), raw_frame)
    return known


def in_ms(seconds: list[float]) -> float:
    """Return the median in milliseconds."""
    return statistics.median(seconds) * 1000


def timed(act: Callable[[], object]) -> float:
    """Run a function and return the seconds it took."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def latency(known: dict[str, Way], change: Callable[[], None], rounds: int) -> Medians:
    """Measure the median command and frame latency of every method."""
    seconds: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in known}
    order = random.Random(0)
    for _ in range(rounds):
        for name, (command, frame) in order.sample(list(known.items()), len(known)):
            for _ in range(IN_A_ROW):
                change()
                seconds[name][1].append(timed(frame))
            if command is not None:
                seconds[name][0].extend(timed(command) for _ in range(IN_A_ROW))
    return {
        name: (in_ms(commands) if commands else None, in_ms(frames))
        for name, (commands, frames) in seconds.items()
    }


def latency_table(medians: Medians, rounds: int) -> Table:
    """Format the medians as a table."""
    table = Table("method", "command, ms", "frame, ms", title=f"Medians of {rounds} rounds")
    for name, (command, frame) in medians.items():
        table.add_row(name, "" if command is None else f"{command:.2f}", f"{frame:.2f}")
    return table


def bench_table(phones: dict[str, AdbPhone], rounds: int) -> Table:
    """Measure all capture and input methods like `agentrl devices bench`."""
    table = Table("driver", "kind", "method", "ms", "", title="Capture and input of one phone")
    for driver, phone in phones.items():
        phone.launch(PACKAGE, ACTIVITY, {})
        touch = functools.partial(phone.perform, Tap(0.5, 0.2))
        for row in mark_fastest(measure_methods(phone, rounds=rounds, change=touch)):
            median = "" if row.median_ms is None else f"{row.median_ms:.2f}"
            lag = "" if row.lag_s is None else f"lag {row.lag_s * 1000:.0f} ms "
            note = row.failure or f"{lag}{'picked' if row.picked else ''}"
            table.add_row(driver, row.kind, row.name, median, note)
    return table


def settle_seconds(device: Device, rounds: int) -> list[float]:
    """Measure the seconds from a tap to its settled frame."""
    device.launch(PACKAGE, ACTIVITY, {})
    before, seconds = device.screenshot(), []
    for _ in range(rounds):
        settled = act_and_settle(device, Tap(0.5, 0.2), before=before, package=PACKAGE)
        assert settled.changed
        before = settled.frame
        seconds.append(settled.seconds)
    return seconds


async def frames_per_second(num_phones: int, seconds: float, capture: str) -> float:
    """Measure the total frames per second of all phones, each read by its own thread.

    The screens do not change. `framebuffer` sends whole frames, as a real phone does; `raw` asks
    for changes, and a virtual phone replies that there are none.
    """
    phones = f"virtual:{num_phones}"
    with open_source(phones, apps=[PROBE], tempo="quick", capture=capture) as pool:

        def read(device: Device) -> int:
            count, end = 0, time.monotonic() + seconds
            while time.monotonic() < end:
                device.screenshot()
                count += 1
            return count

        async def read_one() -> int:
            async with pool.lease(10) as device:
                return await asyncio.to_thread(read, device)

        start = time.monotonic()
        counts = await asyncio.gather(*(read_one() for _ in range(num_phones)))
        return sum(counts) / (time.monotonic() - start)


def by_both_drivers(device: Device) -> dict[str, AdbPhone]:
    """Open the same phone with each driver."""
    return {
        driver: AdbPhone(AdbServer.from_environment(driver), device.serial)
        for driver in DRIVER.names()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--phones", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    console = Console(width=100)
    stack = ("adbutils", "pure-python-adb", "numpy", "opencv-python-headless")
    console.print(conditions(*stack), highlight=False, soft_wrap=True)
    more = Table("measurement", "value", "limit", title="Limits")
    device = open_device("virtual", apps=[PROBE], tempo="quick")
    phones = by_both_drivers(device)
    device.launch(PACKAGE, ACTIVITY, {})
    known = ways(phones, AdbServer.from_environment())
    medians = latency(known, lambda: device.perform(Tap(0.5, 0.2)), options.rounds)
    console.print(latency_table(medians, options.rounds))
    console.print(bench_table(phones, 5))
    command, frame = medians[OURS]
    more.add_row("our command", f"{command:.2f} ms", "1 ms")
    more.add_row("our raw frame", f"{frame:.2f} ms", "5 ms")
    more.add_row(f"{SCREENSHOT} / our frame", f"{medians[SCREENSHOT][1] / frame:.0f}", ">= 15")
    settled = in_ms(settle_seconds(device, options.rounds))
    more.add_row("tap -> settled frame, immediate effect", f"{settled:.2f} ms", "12 ms")
    device.close()
    late = open_device("virtual", apps=[PROBE], effect_delay_ms=(DELAY_MS, DELAY_MS))
    settled = in_ms(settle_seconds(late, options.rounds // 2))
    late.close()
    name = f"tap -> settled frame, effect after {DELAY_MS} ms"
    more.add_row(name, f"{settled:.2f} ms", f"{DELAY_MS + 40} ms")
    for capture, kind in (("framebuffer", "whole frames"), ("raw", "no changes")):
        rate = asyncio.run(frames_per_second(options.phones, options.seconds, capture))
        limit = ">= 150" if capture == "framebuffer" else ""
        more.add_row(f"frames/s, {options.phones} phones, {kind}", f"{rate:.0f}", limit)
    console.print(more)


if __name__ == "__main__":
    main()
