"""Processes that end together with the process that started them, including all descendants.

This file is also a script: `supervised` puts it in front of a command. Linux reparents an orphan to
its nearest ancestor that is a subreaper, so all descendants of the command stay below the
supervisor, even in separate sessions, as with browsers and daemons.
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
"""Seconds that processes may take to end after SIGKILL, as a device or file system can block
them."""
_SCAN_S = 0.01


def supervised(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` under a supervisor, which ends with this process.

    The new process exits with the exit code or signal of the command. The supervisor kills the
    command and all its descendants when the command ends, the new process receives SIGTERM, or this
    process ends (even by kill -9). On systems other than Linux, the command is returned unchanged.

    Args:
        command: begins with the full path of a program.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def start(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Start a command under a supervisor; see `supervised`. Stop it with `end`.

    The command gets its own session, so Ctrl-C goes only to this process, which can then end the
    command in an orderly way.

    Args:
        command: begins with the full path of a program.
        **options: options of `subprocess.Popen`.
    """
    import subprocess  # not needed by the supervisor

    return subprocess.Popen(supervised(command), start_new_session=True, **options)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process from `start` and all its descendants; may be called twice."""
    process.terminate()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def end_with_parent(number: int = signal.SIGKILL, parent: int | None = None) -> None:
    """Ask Linux to send this process a signal when its parent ends, even by kill -9.

    The signal is also sent when only the thread that started this process ends.

    Args:
        number: signal number.
        parent: process id of the parent. If the parent has already ended, the signal is sent
            immediately.
    """
    _prctl(_PR_SET_PDEATHSIG, int(number))
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), number)


def _prctl(option: int, value: int) -> None:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(option, value, 0, 0, 0)


def describe_exit(code: int) -> str:
    """Describe how a process ended: `exit code 1` or `signal SIGSEGV`.

    Args:
        code: exit code from `subprocess`, negative for a signal.
    """
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def free_port(host: str = "127.0.0.1") -> int:
    """Return a free port, which another process may still take before it is used."""
    import socket

    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def descendants(pid: int) -> list[int]:
    """Return the running descendants of a process; empty on systems without /proc."""
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
    # Zombies count as parents, because they keep their children until their last thread has ended.
    return [one for one in found if one not in zombies]


def adopt_orphans() -> None:
    """On Linux, make this process adopt all orphans among its future descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_descendants(pid: int) -> None:
    """Kill all descendants of a process, including orphans it adopted, within a time bound."""
    end = time.monotonic() + _KILL_S
    while (left := descendants(pid)) and time.monotonic() < end:
        for one in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(_SCAN_S)


def _main(owner: int, command: Sequence[str]) -> NoReturn:
    """Run the command under a supervisor, and exit in the same way as the command.

    The supervisor is a child of this process because Ray sends SIGKILL to the children of an
    exiting worker, which must not keep the supervisor from ending its descendants.
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
    """Wait for the command's end or SIGTERM, kill its descendants, and return the wait status."""
    adopt_orphans()
    status = int(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, _interrupt_once)
        end_with_parent(signal.SIGTERM, front)
        child, ended = _start(command), 0
        while ended != child:  # other ids are those of orphaned descendants
            ended, status = os.wait()
        # Ignore SIGTERM from here on, because it may arrive at the moment the command ends.
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
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores it
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
        with contextlib.suppress(OSError):  # the handler of SIGKILL cannot be set
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
