"""Start virtual phones in a separate process."""

import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from virtual_phone.errors import PhoneError, SettingError, StartError, StartTimeout
from virtual_phone.faults import fault_plan
from virtual_phone.faults.fault_plan import FaultPlan
from virtual_phone.phones_spec import EFFECT_DELAY_MS, AppSpec, PhonesSpec, Tempo

AppLike = str | tuple[str, Mapping[str, Any]] | AppSpec
"""`module:Class`, optionally with keyword arguments for the constructor."""
FaultsLike = FaultPlan | Mapping[str, Any] | str | Path
"""A fault plan, the values of a plan file, or the path of such a file."""

_SIDES = (64, 4096)
"""Range of screen side lengths in pixels; the status bar needs some space."""
_MAX_PHONES = 1000
"""Maximum number of phones in one process."""
_MAX_RESTARTS = 3
"""How many times phones are restarted after their process has ended."""

log = logging.getLogger(__name__)


class VirtualPhones:
    """Virtual phones running in a separate process, which `close` ends.

    The phones also end when this process ends for any reason.
    """

    def __init__(
        self, spec: PhonesSpec, process: "subprocess.Popen[bytes]", ports: Sequence[int]
    ) -> None:
        self.ports = tuple(ports)
        self.serials = tuple(f"127.0.0.1:{port}" for port in ports)
        self._spec = replace(spec, ports=self.ports)
        self._process = process
        self._restarting = threading.Lock()
        self._num_restarts = 0
        self._is_closed = False

    @property
    def pid(self) -> int:
        """Id of the phones' process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the phones' process is running."""
        return self._process.poll() is None

    def revive(self, deadline_s: float = 30.0) -> bool:
        """If the phones' process has ended, start new phones on the same ports.

        Returns:
            False once the process has ended too often.
        """
        with self._restarting:
            # Another thread may have restarted the phones while this one waited for the lock.
            if self.alive or self._is_closed:
                return True
            code = self._process.returncode
            if self._num_restarts >= _MAX_RESTARTS:
                log.error(
                    "the process of the virtual phones has ended %d times; not restarting it again",
                    _MAX_RESTARTS + 1,
                )
                return False
            self._num_restarts += 1
            log.warning(
                "the process of the virtual phones ended with exit code %d; restarting it (%d of "
                "at most %d times)",
                code,
                self._num_restarts,
                _MAX_RESTARTS,
            )
            _end(self._process)
            try:
                self._process, _ = _start_process(self._spec, deadline_s)
            except PhoneError as error:
                log.warning("restarting the virtual phones failed: %s", error)
            return True

    def close(self) -> None:
        """Stop the phones."""
        with self._restarting:
            self._is_closed = True
            _end(self._process)

    def __enter__(self) -> "VirtualPhones":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def spawn(
    num_phones: int,
    apps: Sequence[AppLike] = (),
    *,
    size: tuple[int, int] = (720, 1280),
    tempo: Tempo = "real",
    effect_delay_ms: tuple[float, float] | None = None,
    seed: int = 0,
    faults: FaultsLike | None = None,
    auth: bool = False,
    keys: Sequence[str] | None = None,
    adb_server: tuple[str, int] | None = None,
    deadline_s: float = 30.0,
) -> VirtualPhones:
    """Start virtual phones and wait until all of them are listening.

    Args:
        num_phones: number of phones, all in one process.
        apps: apps to install on each phone.
        size: width and height of the screens, in pixels.
        tempo: `real`, where gestures take time, or `quick`, where they are instant.
        effect_delay_ms: shortest and longest delay before a touch has a visible effect; None uses
            the tempo's default, 50 to 300 ms for `real` and 0 for `quick`.
        seed: seed of the clocks and delays.
        faults: which faults occur, and when (`virtual_phone.faults.fault_plan`).
        auth: whether the phones require ADB authentication.
        keys: public keys that the phones trust. None accepts every key, as if a user pressed
            Allow; with a list, other keys are rejected.
        adb_server: host and port of the adb server to remove the phones from when they end, even
            if this process is killed.
        deadline_s: seconds within which all phones must be ready.

    Raises:
        SettingError: an app does not exist, the fault plan is invalid, or a value is out of range.
        StartTimeout: the phones were not ready in time.
        StartError: the phones' process ended during the start.
    """
    _check_values(num_phones, size, tempo, effect_delay_ms)
    spec = PhonesSpec(
        num_phones=num_phones,
        apps=tuple(_app_spec(app) for app in apps),
        size=size,
        tempo=tempo,
        effect_delay_ms=effect_delay_ms,
        seed=seed,
        faults=_plan(faults).to_dict(),
        auth=auth,
        keys=None if keys is None else tuple(keys),
        adb_server=adb_server,
        parent=os.getpid(),
        path=tuple(entry or os.getcwd() for entry in sys.path),
    )
    return VirtualPhones(spec, *_start_process(spec, deadline_s))


def _check_values(
    num_phones: int,
    size: tuple[int, int],
    tempo: Tempo,
    effect_delay_ms: tuple[float, float] | None,
) -> None:
    if tempo not in EFFECT_DELAY_MS:
        raise SettingError(f"tempo={tempo!r} must be {' or '.join(EFFECT_DELAY_MS)}")
    low, high = effect_delay_ms or (0, 0)
    least, most = _SIDES
    are_sides = least <= min(size) <= max(size) <= most
    if not 1 <= num_phones <= _MAX_PHONES or not are_sides or not 0 <= low <= high:
        raise SettingError(
            f"cannot create phones with num_phones={num_phones} (1 to {_MAX_PHONES}), size={size} "
            f"(both sides {least} to {most}), effect_delay_ms={effect_delay_ms} (0 <= low <= high)"
        )


def _start_process(
    spec: PhonesSpec, deadline_s: float
) -> "tuple[subprocess.Popen[bytes], list[int]]":
    """Start the phones' process and wait until it reports their ports."""
    process = subprocess.Popen(
        [sys.executable, "-m", "virtual_phone.phone_host_process", spec.to_json()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C must not reach the phones: this process stops them
        env={**os.environ, "PYTHONPATH": os.pathsep.join(spec.path)},
    )
    try:
        report = json.loads(_first_line(process, deadline_s))
        if "error" in report:
            raise SettingError(report["error"])
    except BaseException:
        _end(process)
        raise
    return process, report["ports"]


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
            raise StartTimeout(
                f"the virtual phones were not ready after {deadline_s:g} s; is the machine busy?"
            )
        chunk = os.read(fd, 65536)
        if not chunk:
            raise StartError(
                f"the process of the virtual phones ended with exit code {process.wait()} before "
                "it was ready; see its output above"
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
