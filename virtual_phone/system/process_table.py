"""The programs that run on a phone's shells, as `ps` lists them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

_FIRST_PID = 3000
SIGNALS = {
    "HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "USR1": 10, "USR2": 12, "PIPE": 13, "ALRM": 14,
    "TERM": 15, "CHLD": 17, "CONT": 18, "STOP": 19, "TSTP": 20,
}  # fmt: skip
"""Number of each signal that the shell knows."""
_HARMLESS = frozenset((0, 17, 18, 19, 20))
"""Signals that end no program."""


@dataclass(slots=True, kw_only=True)
class Process:
    """A running program, or a shell."""

    pid: int
    parent: int
    words: Sequence[str]
    """The name and the arguments."""
    task: "asyncio.Task[object] | None" = None
    """Runs the program, perhaps among others."""
    signal: int = 0
    """Signal that ends the program."""
    code: int = 0
    """Exit code of a job in the background, once it has ended."""


@dataclass(slots=True)
class ProcessTable:
    """The programs of one phone by process id."""

    running: dict[int, Process] = field(default_factory=dict)
    _next: int = _FIRST_PID

    def new_pid(self) -> int:
        """A process id that no other program has."""
        pid, self._next = self._next, self._next + 1
        return pid

    def start(self, words: Sequence[str], parent: int) -> Process:
        """Add a program that the current task runs."""
        pid, self._next = self._next, self._next + 1
        task = asyncio.current_task()
        process = Process(pid=pid, parent=parent, words=words, task=task)
        self.running[pid] = process
        return process

    def end(self, process: Process) -> None:
        """Remove a program."""
        self.running.pop(process.pid, None)

    def kill(self, pid: int, signal: int) -> bool:
        """Send a signal; returns whether there is such a program."""
        process = self.running.get(pid)
        if process is None:
            return False
        if signal not in _HARMLESS and not process.signal and process.task is not None:
            process.signal = signal
            process.task.cancel()
        return True


def signal_number(text: str) -> int | None:
    """The number of a signal such as `9`, `KILL` or `SIGKILL`."""
    if text.isascii() and text.isdecimal():
        return int(text[:4])
    return SIGNALS.get(text.upper().removeprefix("SIG"))
