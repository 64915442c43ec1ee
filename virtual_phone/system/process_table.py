"""Programs running in a phone's shells, as listed by `ps`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

_FIRST_PID = 3000
SIGNALS = {
    "HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "USR1": 10, "USR2": 12, "PIPE": 13, "ALRM": 14,
    "TERM": 15, "CHLD": 17, "CONT": 18, "STOP": 19, "TSTP": 20,
}  # fmt: skip
"""Numbers of the signals that the shell supports."""
_HARMLESS = frozenset((0, 17, 18, 19, 20))
"""Signals that do not end programs."""


@dataclass(slots=True, kw_only=True)
class Process:
    """A running program or shell."""

    pid: int
    parent: int
    words: Sequence[str]
    """Name and arguments of the program."""
    task: "asyncio.Task[object] | None" = None
    """Task that runs the program and possibly others."""
    signal: int = 0
    """Signal that ends the program."""
    code: int = 0
    """Exit code of a background job, once it has ended."""


@dataclass(slots=True)
class ProcessTable:
    """Running programs of one phone, by process id."""

    running: dict[int, Process] = field(default_factory=dict)
    _next: int = _FIRST_PID

    def new_pid(self) -> int:
        """Return an unused process id."""
        pid, self._next = self._next, self._next + 1
        return pid

    def start(self, words: Sequence[str], parent: int) -> Process:
        """Add a program run by the current task."""
        task = asyncio.current_task()
        process = Process(pid=self.new_pid(), parent=parent, words=words, task=task)
        self.running[process.pid] = process
        return process

    def end(self, process: Process) -> None:
        """Remove a program."""
        self.running.pop(process.pid, None)

    def kill(self, pid: int, signal: int) -> bool:
        """Send a signal; return whether the program exists."""
        process = self.running.get(pid)
        if process is None:
            return False
        if signal not in _HARMLESS and not process.signal and process.task is not None:
            process.signal = signal
            process.task.cancel()
        return True


def signal_number(text: str) -> int | None:
    """Return the number of a signal such as `9`, `KILL` or `SIGKILL`."""
    if text.isascii() and text.isdecimal():
        return int(text[:4])
    return SIGNALS.get(text.upper().removeprefix("SIG"))
