"""Measure taps on web pages in the browser of virtual phones: python benchmarks/browser.py.

Each phone shows a page whose background changes with every touch. A step is a tap over adb, until
the page has handled it and a screen that shows the change has been captured. The phones of a row
run at the same time, in one process, and share one Chromium.
"""

import argparse
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from conditions import conditions
from rich.console import Console
from rich.table import Table

from agentrl.child_process import descendants
from agentrl.devices import Device, Tap, open_device
from agentrl.devices.adb import AdbServer
from virtual_phone import spawn

APP = "virtual_phone.browser.browser_app:BrowserApp"
PACKAGE = "com.android.chrome"
PAGE = b"""<meta name=viewport content='width=device-width'>
<body onclick="document.body.style.background =
    '#' + (~~(Math.random() * 0x1000000)).toString(16).padStart(6, '0')">"""
DEADLINE_S = 60.0


class Pages(BaseHTTPRequestHandler):
    """Serves the page."""

    def do_GET(self) -> None:
        """Answer with the page."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *args: object) -> None:
        """Be quiet."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--phones", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--steps", type=int, default=50, help="steps per phone")
    options = parser.parse_args()
    table = Table("phones", "start, s", "step, ms (median)", "steps/s, all phones", "MB per phone")
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for count in options.phones:
            table.add_row(*measure(count, options.steps, server.server_port))
        server.shutdown()
    print(conditions("playwright"))
    Console().print(table)


def measure(count: int, steps: int, port: int) -> Sequence[str]:
    """Return a row of the table."""
    adb = AdbServer.from_environment()
    adb.ensure(DEADLINE_S)
    with (
        spawn(count, [APP], tempo="quick", adb_server=(adb.host, adb.port)) as phones,
        ThreadPoolExecutor(count) as threads,
    ):
        devices = [open_device(serial) for serial in phones.serials]
        empty = memory_mb(phones.pid)
        began = time.perf_counter()
        list(threads.map(partial(open_page, port=port), devices))
        start_s = time.perf_counter() - began
        began = time.perf_counter()
        seconds = [*threads.map(partial(play, steps=steps), devices)]
        total_s = time.perf_counter() - began
        used = (memory_mb(phones.pid) - empty) / count
        for device in devices:
            device.close()
    median_ms = statistics.median(second for each in seconds for second in each) * 1000
    rate = count * steps / total_s
    return str(count), f"{start_s:.1f}", f"{median_ms:.0f}", f"{rate:.1f}", f"{used:.0f}"


def open_page(device: Device, port: int) -> None:
    """Open the page, and wait until a tap has an effect."""
    device.reverse("tcp:8000", f"tcp:{port}")
    view = "android.intent.action.VIEW"
    device.shell("am", "start", "-a", view, "-d", "http://localhost:8000/")
    step(device)


def play(device: Device, steps: int) -> list[float]:
    """Return the seconds of each step."""
    seconds = []
    for _ in range(steps):
        began = time.perf_counter()
        step(device)
        seconds.append(time.perf_counter() - began)
    return seconds


def step(device: Device) -> None:
    """Tap, and capture the screen with the effect.

    Raises:
        SystemExit: the page did not handle the tap in time.
    """
    touches, end_s = device.app_state(PACKAGE)["touches"], time.monotonic() + DEADLINE_S
    device.perform(Tap(0.5, 0.5))
    while device.app_state(PACKAGE)["touches"] == touches:
        if time.monotonic() > end_s:
            raise SystemExit(f"{device.serial}: the page did not handle a tap")
    device.screenshot()


def memory_mb(pid: int) -> float:
    """Return the memory of a process and its descendants, shared pages in proportion, in MB."""
    total = 0
    for one in [pid, *descendants(pid)]:
        rollup = Path(f"/proc/{one}/smaps_rollup")
        if rollup.exists():
            lines = (line.split() for line in rollup.read_text().splitlines())
            total += sum(int(line[1]) for line in lines if line[0] == "Pss:")
    return total / 1000


if __name__ == "__main__":
    main()
