"""The process that hosts virtual phones: many phones on one event loop, loopback only."""

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2

from virtual_phone.errors import SettingError
from virtual_phone.faults import fault_plan
from virtual_phone.faults.fault_plan import FaultPlan, FaultSchedule
from virtual_phone.phones_spec import PhonesSpec, make_apps
from virtual_phone.protocol.phone_server import PhoneServer
from virtual_phone.virtual_phone import VirtualPhone

_PR_SET_PDEATHSIG = 1


async def serve(spec: PhonesSpec, report_fd: int) -> None:
    """Run phones until standard input ends, the parent dies, or a signal requests a stop."""
    stop = asyncio.Event()
    _die_with_parent(spec.parent, stop)
    servers: list[PhoneServer] = []
    try:
        plan = fault_plan.read(spec.faults)
        for number in range(spec.num_phones):
            servers.append(_start(spec, plan, number))
    except SettingError as error:
        _report(report_fd, {"error": str(error)})
        return
    ports = [server.port for server in servers]
    with _listed(spec.adb_server, ports):
        _report(report_fd, {"ports": ports})
        await stop.wait()
        for server in servers:
            server.close()
            server.phone.tasks.end_all()
        for server in servers:
            await server.phone.shut_down()


@contextlib.contextmanager
def _listed(adb_server: tuple[str, int] | None, ports: Sequence[int]) -> Iterator[None]:
    """Ensure the phones leave the adb server's list at the end, however this process ends."""
    if adb_server is None:
        yield
        return
    script, (host, port) = str(Path(__file__).with_name("adb_server_cleanup.py")), adb_server
    command = [sys.executable, "-I", "-S", script, host, str(port), *map(str, ports)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):
        yield


def _start(spec: PhonesSpec, plan: FaultPlan, number: int) -> PhoneServer:
    """Start a phone with its faults, listening on a port."""
    phone = VirtualPhone(
        make_apps(spec.apps),
        size=spec.size,
        tempo=spec.tempo,
        effect_delay_ms=spec.effect_delay_ms,
        seed=spec.seed,
        number=number,
        serialno=f"VIRTUAL{spec.seed:04d}{number:03d}P{os.getpid()}",
    )
    port = spec.ports[number] if spec.ports else 0
    server = PhoneServer(phone, auth=spec.auth, keys=spec.keys, port=port)
    server.on_restart = FaultSchedule(phone.faults, plan, number).set_permanent
    return server


def _die_with_parent(parent: int | None, stop: asyncio.Event) -> None:
    """Stop when the parent is gone, even after kill -9.

    Neither of the two mechanisms is enough: the pipe stays open while another child of the parent
    holds it, and the kernel's signal also fires when only the *thread* that started us ends.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if parent is None:
        return

    def check() -> None:
        if os.getppid() != parent:
            stop.set()

    def on_input() -> None:
        if not os.read(0, 4096):
            stop.set()

    loop.add_reader(0, on_input)
    if sys.platform == "linux":
        loop.add_signal_handler(signal.SIGUSR2, check)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGUSR2), 0, 0, 0)
    check()


def _report(report_fd: int, message: Mapping[str, Any]) -> None:
    os.write(report_fd, (json.dumps(message) + "\n").encode())


def main() -> None:
    """Run the phones described by the argument."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    spec = PhonesSpec.from_json(sys.argv[1])
    sys.path += [entry for entry in spec.path if entry not in sys.path]
    cv2.setNumThreads(1)
    # Redirect output of apps to standard error: the parent reads a single line of stdout.
    report_fd = os.dup(1)
    os.dup2(2, 1)
    asyncio.run(serve(spec, report_fd))


if __name__ == "__main__":
    main()
