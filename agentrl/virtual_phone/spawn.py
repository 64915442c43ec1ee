"""Start virtual phones in another process."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError, DeviceError, DeviceTimeout
from agentrl.virtual_phone.faults import fault_plan
from agentrl.virtual_phone.faults.fault_plan import FaultPlan
from agentrl.virtual_phone.spec import AppSpec, PhonesSpec

AppLike = str | tuple[str, Mapping[str, Any]] | AppSpec
"""`module:Class`, with keyword arguments of its constructor beside it or not."""
FaultsLike = FaultPlan | Mapping[str, Any] | str | Path
"""A plan of faults, what stands in its file, or the file."""

_SIDES = (64, 4096)
"""Of a screen, in pixels: below there is no room for a status bar, beyond no phone."""
_MOST = 1000
"""Phones of one process."""


class Phones:
    """Virtual phones that run in their own process; ends them when closed.

    They also end with this process, whatever ends it.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", ports: Sequence[int]) -> None:
        """Made by `spawn`."""
        self.pid = process.pid
        self.ports = tuple(ports)
        self.serials = tuple(f"127.0.0.1:{port}" for port in ports)
        self._process = process

    @property
    def alive(self) -> bool:
        """Whether their process runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the phones."""
        _end(self._process)

    def __enter__(self) -> "Phones":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def spawn(
    num_phones: int,
    apps: Sequence[AppLike] = (),
    *,
    size: tuple[int, int] = (720, 1280),
    effect_delay_ms: tuple[float, float] = (50, 300),
    seed: int = 0,
    faults: FaultsLike | None = None,
    auth: bool = False,
    keys: Sequence[str] | None = None,
    deadline_s: float = 30.0,
) -> Phones:
    """Start phones and wait until each of them listens.

    Args:
        num_phones: how many, all in one process.
        apps: installed on each.
        size: of the screens: width and height in pixels.
        effect_delay_ms: how late the effect of a touch appears, at least and at most.
        seed: of the clocks and delays.
        faults: what goes wrong with them, and when (`agentrl.virtual_phone.faults.fault_plan`).
        auth: whether they ask computers for a key before they let them in.
        keys: public keys that they know then; None lets in whoever asks, as an owner does who
            presses Allow; with a list, nobody else is let in.
        deadline_s: for all of them to be ready.

    Raises:
        ConfigError: an app that does not exist, a plan that is none, or a value that makes no
            phone.
        DeviceTimeout: they were not ready in time.
        DeviceError: their process ended at once.
    """
    low, high = effect_delay_ms
    least, most = _SIDES
    are_sides = least <= min(size) <= max(size) <= most
    if not 1 <= num_phones <= _MOST or not are_sides or not 0 <= low <= high:
        raise ConfigError(
            f"no phones can be made with num_phones={num_phones} (1 to {_MOST}), size={size} "
            f"(both sides {least} to {most}), effect_delay_ms={effect_delay_ms} (0 <= low <= high)"
        )
    spec = PhonesSpec(
        num_phones=num_phones,
        apps=tuple(_app_spec(app) for app in apps),
        size=size,
        effect_delay_ms=effect_delay_ms,
        seed=seed,
        faults=_plan(faults).to_dict(),
        auth=auth,
        keys=None if keys is None else tuple(keys),
        parent=os.getpid(),
        path=tuple(entry or os.getcwd() for entry in sys.path),
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "agentrl.virtual_phone", spec.to_json()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for us; we end them in good order
        env={**os.environ, "PYTHONPATH": os.pathsep.join(spec.path)},
    )
    try:
        told = json.loads(_first_line(process, deadline_s))
        if "error" in told:
            raise ConfigError(told["error"])
    except BaseException:
        _end(process)
        raise
    return Phones(process, told["ports"])


def _plan(faults: FaultsLike | None) -> FaultPlan:
    if isinstance(faults, FaultPlan):
        return faults
    return fault_plan.load(faults) if isinstance(faults, str | Path) else fault_plan.read(faults)


def _app_spec(app: AppLike) -> AppSpec:
    if isinstance(app, AppSpec):
        return app
    if isinstance(app, str):
        return AppSpec(app=app)
    return AppSpec(app=app[0], kwargs=dict(app[1]))


def _first_line(process: "subprocess.Popen[bytes]", deadline_s: float) -> bytes:
    assert process.stdout is not None
    end, line, fd = time.monotonic() + deadline_s, b"", process.stdout.fileno()
    while not line.endswith(b"\n"):
        left = end - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            raise DeviceTimeout(
                f"the virtual phones were not ready after {deadline_s:g} s; is the machine busy?"
            )
        chunk = os.read(fd, 65536)
        if not chunk:
            raise DeviceError(
                f"the process of the virtual phones ended with code {process.wait()} before it "
                "was ready; what it said stands above"
            )
        line += chunk
    return line


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
