"""Picks a phone's fastest capture and input methods, for `devices.capture=auto` and `input=auto`.

`auto` measures a phone when it is opened: every method once, then repeatedly while `BUDGET_S`
lasts. Each method gets the same timeout as a job's own calls, so that on a slow link the choice
does not depend on the order of measurement. This takes 0.1 s on a virtual phone; on a real phone,
captures take most of the time. Phones are opened in parallel. `auto` skips the stream, because
measuring its lag requires changing the screen, which opening a phone must not do;
`measure_methods` measures it on demand.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.shell_script import Command
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.capture.capture_trial import CaptureTrial
from agentrl.devices.capture_and_input_timing import (
    DEFAULT_METHODS,
    MethodTiming,
    capture_methods,
    time_capture,
    time_inputs,
)

log = logging.getLogger(__name__)

BUDGET_S = 1.0
"""Seconds for which `auto` repeats capture measurements, and likewise input measurements; the
first round may take longer."""
_ROUNDS = 2
_CLEARLY = 1.25
"""Only a method faster by this factor replaces the default; smaller differences are noise."""
_NOTHING: Command = ("true",)


def choose_methods(
    phone: AdbPhone, *, capture: str = "auto", input: str = "auto"
) -> list[MethodTiming]:
    """Set a phone's capture and input methods; `auto` measures them and picks the fastest."""
    rows = []
    if input == "auto":
        rows += time_inputs(phone, _NOTHING, _ROUNDS, Deadline(BUDGET_S))
    if capture == "auto":
        # Skip the stream, because measuring its lag requires changing the screen.
        trial = CaptureTrial(
            phone.transport, phone.deadlines.frame_s, rounds=_ROUNDS, repeat_s=BUDGET_S
        )
        quick = [name for name, cls in capture_methods().items() if cls.measured_at_open]
        rows += [time_capture(phone, trial, name, None, _ROUNDS) for name in quick]
    rows = mark_fastest(rows)
    picked = {row.kind: row.name for row in rows if row.picked}
    taken = set_methods(phone, **({"capture": capture, "input": input} | picked))
    timings = ", ".join(f"{row.name} {row.failure or f'{row.median_ms:.1f} ms'}" for row in rows)
    log.info("%s: capture %s, input %s (%s)", phone.serial, *taken, timings or "as configured")
    return rows


def set_methods(phone: AdbPhone, *, capture: str, input: str) -> tuple[str, str]:
    """Set a phone's capture and input methods and return them; `auto` means the defaults."""
    requested = {"capture": capture, "input": input}
    taken = {
        kind: DEFAULT_METHODS[kind] if name == "auto" else name for kind, name in requested.items()
    }
    phone.use(**taken)
    return taken["capture"], taken["input"]


def mark_fastest(rows: Sequence[MethodTiming]) -> list[MethodTiming]:
    """Mark the fastest working method of each kind, or the default if it is hardly slower."""
    picked = set()
    for kind, usual in DEFAULT_METHODS.items():
        works = {r.name: r.median_ms for r in rows if r.kind == kind and r.median_ms is not None}
        if works:
            fastest = min(works, key=lambda name: works[name])
            keeps = usual in works and works[usual] <= _CLEARLY * works[fastest]
            picked.add((kind, usual if keeps else fastest))
    return [replace(row, picked=(row.kind, row.name) in picked) for row in rows]
