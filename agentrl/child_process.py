"""Processes that end with the one that started them, with everything that they have started.

This file is also a script: `supervised` puts it in front of a command. Linux hands a process whose
parent has ended to the nearest subreaper above it, so the supervisor finds each descendant of the
command below itself, also those in sessions of their own, as browsers and daemons are.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import subprocess

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_KILL_S = 5.0
"""How long processes may take to end after SIGKILL: a device or file system may hold them."""
_SCAN_S = 0.01


def supervised(command: Sequence[str]) -> list[str]:
    """Return the command that runs this one under a supervisor, which ends with this process.

    The new process ends with the exit code or signal of the command. When the command has ended,
    the new process gets SIGTERM, or this process ends (also by kill -9), the supervisor kills the
    command and everything that it has started. Except on Linux, the command is returned as it is.

    Args:
        command: begins with the full path of a program.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def start(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Start a command under a supervisor; see `supervised`. `end` ends it.

    It gets a session of its own: Ctrl-C goes to this process only, which ends it in order.

    Args:
        command: begins with the full path of a program.
        **options: those of `subprocess.Popen`.
    """
    import subprocess  # which the supervisor does not need

    return subprocess.Popen(supervised(command), start_new_session=True, **options)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process of `start` with everything that it has started; may be called twice."""
    process.terminate()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def end_with_parent(number: int = signal.SIGKILL, parent: int | None = None) -> None:
    """Have Linux send this process a signal when its parent ends, also by kill -9.

    It is also sent when only the thread that started this process ends.

    Args:
        number: of the signal.
        parent: process id of the parent, which may have ended by now: then the signal comes at
            once.
    """
    _prctl(_PR_SET_PDEATHSIG, int(number))
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), number)


def _prctl(option: int, value: int) -> None:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(option, value, 0, 0, 0)


def describe_exit(code: int) -> str:
    """How a process ended: `exit code 1` or `signal SIGSEGV`.

    Args:
        code: as `subprocess` gives it, negative for a signal.
    """
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def free_port(host: str = "127.0.0.1") -> int:
    """A port on which nothing listens; another process may take it before it is used."""
    import socket

    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def descendants(pid: int) -> list[int]:
    """The processes below a process that have not ended; empty where there is no /proc."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    zombies = set()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split(maxsplit=2)[:2]
                children[int(parent)].append(int(name))
                if state == b"Z":
                    zombies.add(int(name))
    found = list(children[pid])
    for one in found:
        found += children[one]
    # They count, too, as they keep their children until the last of their threads has ended.
    return [one for one in found if one not in zombies]


def adopt_orphans() -> None:
    """Stay the ancestor of all processes that will be started below this one, on Linux."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_descendants(pid: int) -> None:
    """Kill all processes below one, within a bound; those that adopt orphans have all of theirs."""
    end = time.monotonic() + _KILL_S
    while (left := descendants(pid)) and time.monotonic() < end:
        for one in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(_SCAN_S)


def _main(owner: int, command: Sequence[str]) -> NoReturn:
    """Run the command under a supervisor, and end as it ends.

    The supervisor is a child of this process, because Ray kills the children of a worker that
    exits, by SIGKILL: that must not keep it from ending what is below it.
    """
    front = os.getpid()
    supervisor = os.fork()
    if not supervisor:
        _end_like(_supervise(front, command))

    def on_signal(number: int, _: object) -> None:
        if number == signal.SIGTERM or os.getppid() != owner:
            os.kill(supervisor, signal.SIGTERM)

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGUSR2, on_signal)
    end_with_parent(signal.SIGUSR2, owner)
    _end_like(os.waitpid(supervisor, 0)[1])


def _supervise(front: int, command: Sequence[str]) -> int:
    """Wait for the command's end or SIGTERM, kill what is left, and return the wait status."""
    adopt_orphans()
    status = int(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, _interrupt_once)
        end_with_parent(signal.SIGTERM, front)
        child, ended = _start(command), 0
        while ended != child:  # others are orphans among its descendants
            ended, status = os.wait()
        # Here, as SIGTERM may arrive at the moment at which the command ends.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except KeyboardInterrupt:
        status = int(signal.SIGTERM)
    kill_descendants(os.getpid())
    return status


def _interrupt_once(number: int, _: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _start(command: Sequence[str]) -> int:
    supervisor = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        end_with_parent(parent=supervisor)
        os.execv(command[0], list(command))
    finally:
        os._exit(127)


def _end_like(status: int) -> NoReturn:
    """End with the exit code or signal of a wait status, without a second core dump."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError):  # that of SIGKILL cannot be set
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
