"""Checks for an environment's side effects on the process that it shares with the job."""

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import gymnasium

from agentrl.check.finding import Finding, note, ok, wrong
from agentrl.check.support.open_env import make_as_configured
from agentrl.check.support.random_episodes import SEED
from agentrl.child_process import descendants
from agentrl.config import EnvConfig
from agentrl.errors import describe_error
from agentrl.rollout.environments.env_calls import reset_env
from agentrl.rollout.environments.env_server import CLOSE_S
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.user_code_guard import remember_streams, reopen_closed_streams

CLOSE = "reset and close"
"""Name of the check that resets and closes the first instance."""
_END_S = 1.0
"""How long child processes may take to end after `close()`, in seconds."""
_PYTHONS_OWN = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Python's helper processes, which end with the main process."""


class FirstInstance:
    """The first instance of an environment, made, reset and closed in its own thread.

    Args:
        config: the environment.
    """

    def __init__(self, config: EnvConfig) -> None:
        self.made: Future[gymnasium.Env[Any, Any]] = Future()
        self.closed: Future[None] = Future()
        self._may_close, self._is_closing = Event(), Event()
        self._config = config
        Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            instance = make_as_configured(self._config)
        except BaseException as error:
            self.made.set_exception(error)
            return
        self.made.set_result(instance)
        self._may_close.wait()
        # An environment with an app needs a phone to reset, which only later checks have.
        if resolve_env(self._config).app is None:
            # Ignore exceptions here, since other checks report them.
            with suppress(BaseException):
                reset_env(instance, SEED)
        self._is_closing.set()
        try:
            instance.close()
        except BaseException as error:
            self.closed.set_exception(error)
        else:
            self.closed.set_result(None)

    def wait_for_close(self) -> bool:
        """Reset and close the instance; return False if `close()` takes longer than jobs allow."""
        self.made.result()
        self._may_close.set()
        self._is_closing.wait()
        return bool(wait([self.closed], CLOSE_S).done)


def check_close(first: Callable[[], FirstInstance]) -> Finding:
    """`close()` ends soon and raises nothing."""
    if not first().wait_for_close():
        text = f"close() did not end within {CLOSE_S:g} s"
        return wrong(CLOSE, text, "correct this first, since every other check would wait for it")
    if error := first().closed.exception():
        return note(CLOSE, describe_error(error), "close() must not raise; jobs log it and go on")
    return ok(CLOSE, "close() ends and raises nothing")


@dataclass(slots=True, kw_only=True, frozen=True)
class ProcessState:
    """State that all threads of a process share, and the processes that it has started."""

    folder: Path
    umask: int
    children: frozenset[int]

    @classmethod
    def now(cls) -> "ProcessState":
        """Return the current state of this process."""
        remember_streams()
        # The umask can only be read by setting it.
        umask = os.umask(0)
        os.umask(umask)
        children = frozenset(descendants(os.getpid()))
        return cls(folder=Path.cwd(), umask=umask, children=children)


def check_side_effects(first: Callable[[], FirstInstance], before: ProcessState) -> Finding:
    """The environment leaves its process as it was: folder, umask, streams and children.

    Args:
        first: an instance that was made after `before`, and is being closed.
        before: the state to compare with and to restore.
    """
    what = "side effects"
    first().wait_for_close()
    # Restore everything first, since later checks and the command's own output depend on it.
    closed = reopen_closed_streams()
    end = time.monotonic() + _END_S
    while (left := _children_since(before)) and time.monotonic() < end:
        time.sleep(0.05)
    now = ProcessState.now()
    os.chdir(before.folder)
    os.umask(before.umask)
    isolated = ", or set env.processes=each to run each instance in a process of its own"
    if closed:
        text = f"it closed {' and '.join(closed)}"
        return wrong(what, text, f"leave the streams open{isolated}")
    if now.folder != before.folder:
        text = f"it changed the current folder from {before.folder} to {now.folder}"
        return wrong(what, text, f"use absolute paths instead of os.chdir{isolated}")
    if now.umask != before.umask:
        text = f"it changed the umask from {before.umask:03o} to {now.umask:03o}"
        return wrong(what, text, f"set the mode of files instead{isolated}")
    if left:
        count = "1 process" if len(left) == 1 else f"{len(left)} processes"
        text = f"{count} still running after close(): {', '.join(left)}"
        return note(what, text, "end them in close(), or set env.processes=1 to end them for you")
    return ok(what, "none on the current folder, umask, streams or child processes")


def _children_since(before: ProcessState) -> list[str]:
    """Return the commands of processes started since `before`, except Python's helpers."""
    commands = []
    for pid in descendants(os.getpid()):
        if pid not in before.children:
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                command = " ".join(word.decode("utf-8", "replace") for word in words).strip()
                if not any(helper in command for helper in _PYTHONS_OWN):
                    commands.append(command[:60])
    return commands
