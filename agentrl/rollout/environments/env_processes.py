"""Run environments in other processes: they step in parallel, and a crash ends only one process.

Each environment has its own connection, and a thread of its process answers the calls on it one
after another. Messages are pickled, which is safe as each process runs the same user's code.
"""

import faulthandler
import itertools
import logging
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

import gymnasium
import psutil

from agentrl import child_process
from agentrl.child_process import descendants, describe_exit
from agentrl.config import EnvConfig
from agentrl.env_registry import interface_of
from agentrl.errors import AgentRLError, EnvCrashed, EnvError, EnvLost, describe_error
from agentrl.rollout.environments.env_calls import reset_env, step_env
from agentrl.rollout.environments.env_server import CLOSE_S, sendable
from agentrl.rollout.environments.resolved_env import ResolvedEnv, resolve_env, with_text_actions
from agentrl.text.formatting import pluralize

log = logging.getLogger(__name__)

_ITS_PROCESS = "its process (env.processes)"
_START_S = 60.0
_ANSWER_S = 2.0
"""Seconds within which a process that is not hanging answers a probe."""
_END_S = 5.0
"""Seconds to wait for a process to end once its connections are closed or broken."""
_MEMORY_CHECK_S = 10.0
"""Seconds between measurements of a process's memory."""
_GROWTH_BYTES = 1 << 30
"""Memory growth to warn about, if it also doubles the process's memory."""


class EnvProcesses:
    """Processes that start when first needed, and restart after they die.

    Args:
        count: number of processes; `each` gives every environment its own process, which ends when
            the environment closes.
    """

    def __init__(self, count: int | str) -> None:
        self._one_each = isinstance(count, str)
        count = 0 if isinstance(count, str) else count
        self._processes: list[_EnvProcess | None] = [None] * count
        self._turns = itertools.cycle(range(count))
        self._lock = threading.Lock()

    def make(
        self, env: ResolvedEnv, render_mode: str | None, deadline_s: float
    ) -> "gymnasium.Env[Any, Any]":
        """Make an environment with its wrappers, in the next shared process or a separate one.

        Raises:
            EnvError: the process did not start.
            ConfigError: the environment rejects its arguments.
        """
        mode = {} if render_mode is None else {"render_mode": render_mode}
        kwargs = {**mode, **env.kwargs, **env.remote_kwargs(deadline_s)}
        own = replace(env.settings, kwargs=kwargs, translator_kwargs={})
        with env.named_keys():
            made = EnvInProcess(self, own, deadline_s)
        return with_text_actions(made)

    def place(self, config: EnvConfig) -> "_EnvProcess":
        """Return the process in which to make an environment.

        Raises:
            EnvError: the process did not start.
        """
        if self._one_each:
            started = _EnvProcess(config)
            with self._lock:
                self._processes.append(started)
            return started
        with self._lock:
            index = next(self._turns)
            running = self._processes[index]
            if running is None or not running.is_running:
                if running is not None:
                    child_process.end(running.popen)
                running = self._processes[index] = _EnvProcess(config)
            return running

    def release(self, process: "_EnvProcess") -> None:
        """End a closed environment's process unless other environments share it."""
        if self._one_each:
            with self._lock:
                self._processes = [one for one in self._processes if one is not process]
            child_process.end(process.popen)

    def close(self) -> None:
        """Close all environments within a time limit, and end all processes they started."""
        with self._lock:
            running = [*filter(None, self._processes)]
            self._processes = [None] * len(self._processes)
        for process in running:
            # When its control connection closes, the process closes its environments and ends.
            process.control.close()
        end = time.monotonic() + CLOSE_S + _END_S
        for process in running:
            try:
                process.popen.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("killing an environment process that did not end in time")
            child_process.end(process.popen)


def interface_in_process(env: ResolvedEnv) -> dict[str, Any]:
    """Create an environment once in another process, and return its interface."""
    processes = EnvProcesses(1)
    try:
        with closing(processes.make(env, None, _START_S)) as environment:
            return interface_of(environment)
    finally:
        processes.close()


class _EnvProcess:
    """The parent's handle to one environment process."""

    def __init__(self, config: EnvConfig) -> None:
        self._num_calls = 0
        """Number of calls in progress."""
        self._is_killed = False
        """Whether the process was killed because it hung."""
        self._measured_at, self._memory = 0.0, 0
        self._lock = threading.Lock()
        self.control, its_control = Pipe()
        path = [entry or os.getcwd() for entry in sys.path if isinstance(entry, str)]
        code = f"import sys; sys.path[:] = {path!r}; from {__name__} import main; main"
        with its_control:
            fd = its_control.fileno()
            command = [sys.executable, "-c", f"{code}({fd})"]
            self.popen = child_process.start(command, stdin=subprocess.DEVNULL, pass_fds=[fd])
        try:
            if not self.control.poll(_START_S):
                raise EnvError(f"{config.id}: its process was not ready after {_START_S:g} s")
            self.control.recv()
        except BaseException as error:
            if isinstance(error, OSError | EOFError):
                how = describe_exit(self.popen.wait())
                raise EnvError(f"{config.id}: its process ended with {how}") from None
            child_process.end(self.popen)
            raise

    @property
    def is_running(self) -> bool:
        """Whether the process is still running."""
        return self.popen.poll() is None

    def connect(self, deadline_s: float) -> Connection:
        """Open a connection whose calls raise BlockingIOError after the deadline."""
        connection, theirs = Pipe()
        # Polling for the start of an answer is not enough: a process may hang while sending.
        late = struct.pack("ll", int(deadline_s), int(1e6 * (deadline_s % 1)))
        with socket.socket(fileno=os.dup(connection.fileno())) as end:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, late)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, late)
        with theirs, self._lock:
            send_handle(self.control, theirs.fileno(), self.popen.pid)
        return connection

    @contextmanager
    def calling(self, call: str, deadline_s: float) -> Iterator[None]:
        """Count a call as running in this process; if it fails, raise an error with the cause.

        Raises:
            EnvCrashed: the process ended by itself, or hung and was killed.
            EnvLost: the process was killed because another of its environments hung.
            EnvError: only this environment failed.
        """
        with self._lock:
            self._num_calls += 1
        try:
            yield
        except BlockingIOError as error:
            if not self._is_responding():
                self._is_killed = True
                self.popen.terminate()
                # Otherwise the next environment might be placed in the dying process.
                self.popen.wait()
                how = f"{_ITS_PROCESS} stopped responding and was killed"
                raise EnvCrashed(f"{call}: {how}") from error
            how = f"no answer within {deadline_s:g} s (rollout.deadline_s)"
            raise EnvError(f"{call}: {how}") from error
        except (OSError, EOFError) as error:
            with suppress(subprocess.TimeoutExpired):
                # A process's connections break a moment before it ends.
                self.popen.wait(_END_S)
            if (code := self.popen.returncode) is None:
                raise EnvError(f"{call}: its connection broke: {describe_error(error)}") from error
            if self._is_killed:
                how = "was killed because another of its environments hung"
                raise EnvLost(f"{call}: {_ITS_PROCESS} {how}") from error
            others = pluralize(self._num_calls - 1, "other call")
            also = f", while it also executed {others}" if self._num_calls > 1 else ""
            how = f"ended with {describe_exit(code)}{also}"
            raise EnvCrashed(f"{call}: {_ITS_PROCESS} {how}") from error
        finally:
            with self._lock:
                self._num_calls -= 1

    def _is_responding(self) -> bool:
        """Return whether the process answers, which it still does if only one environment hangs."""
        with suppress(OSError, EOFError), self.connect(_ANSWER_S) as probe:
            probe.send_bytes(pickle.dumps(("respond", {})))
            probe.recv_bytes()
            return True
        return False

    def check_memory(self, id: str) -> None:
        """Warn if the memory of the process and its descendants has grown a lot."""
        if time.monotonic() - self._measured_at < _MEMORY_CHECK_S:
            return
        # Include its descendants, such as a browser's renderers.
        now, base = sum(map(resident_bytes, descendants(self.popen.pid))), self._memory
        grown = base and now > max(2 * base, base + _GROWTH_BYTES)
        self._measured_at, self._memory = time.monotonic(), now if grown or not base else base
        if grown:
            log.warning(
                "%s: the memory of one of its processes (env.processes) has grown from %.1f to "
                "%.1f GB; the environment probably keeps objects that reset should release",
                id,
                base / 1e9,
                now / 1e9,
            )


def resident_bytes(pid: int) -> int:
    """Return a process's resident memory, or 0 if it has ended."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


class EnvInProcess(gymnasium.Env[Any, Any]):
    """An environment in another process; `config.kwargs` has all of its arguments."""

    def __init__(self, owner: EnvProcesses, config: EnvConfig, deadline_s: float) -> None:
        self._owner, self._config, self._deadline_s = owner, config, deadline_s
        self._seed: int | None = None
        self._open()

    def _open(self) -> None:
        self._process = self._owner.place(self._config)
        try:
            self._connection = self._process.connect(self._deadline_s)
            made = self._call("make", settings=self._config)
        except BaseException:
            self._owner.release(self._process)
            raise
        self.action_space, self.observation_space, self.render_mode, modes = made
        self.metadata = {"render_modes": modes}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """See gymnasium.Env.reset; recreates the environment if its process has ended."""
        super().reset(seed=seed)
        self._seed = seed
        # A crash voids only one episode; the next begins in a new process.
        if not self._process.is_running:
            self._connection.close()
            self._open()
        observation, info = self._call("reset", seed=seed, options=options)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """See gymnasium.Env.step."""
        observation, reward, terminated, truncated, info = self._call("step", action=action)
        return observation, reward, terminated, truncated, info

    def render(self) -> Any:
        """See gymnasium.Env.render."""
        return self._call("render")

    def close(self) -> None:
        """Close the environment within a time limit, and end its process if not shared."""
        if not self._connection.closed:
            with suppress(OSError, EOFError), self._connection:
                self._connection.send_bytes(pickle.dumps(("close", {})))
                problem: Any = f"it did not close within {CLOSE_S:g} s"
                if self._connection.poll(CLOSE_S):
                    _, problem = pickle.loads(self._connection.recv_bytes())
                if problem is not None:
                    log.warning("closing %s failed: %s", self._config.id, problem)
        self._owner.release(self._process)

    def _call(self, what: str, **arguments: Any) -> Any:
        """Execute a call in the process, and return the result.

        Raises:
            AgentRLError: raised by the environment itself.
            EnvError: the environment raised any other error, or its process failed.
        """
        name = "its constructor" if what == "make" else f"{what}()"
        seed = "" if self._seed is None else f" (seed {self._seed})"
        call = f"{self._config.id}: {name}{seed}"
        if not self._process.is_running:
            how = "had ended because another of its environments crashed or hung"
            raise EnvLost(f"{call}: {_ITS_PROCESS} {how}")
        with self._process.calling(call, self._deadline_s):
            try:
                self._connection.send_bytes(pickle.dumps((what, arguments)))
                answer = self._connection.recv_bytes()
            except (OSError, EOFError):
                # A late answer must not be mistaken for the answer to a later call.
                self._connection.close()
                raise
        # Child processes that need much memory, such as a browser, often start with an episode.
        if what != "make":
            self._process.check_memory(self._config.id)
        try:
            result, failure = pickle.loads(answer)
        # The answer may contain a class whose module cannot be imported here.
        except Exception as error:
            raise EnvError(f"{call}: cannot read the answer: {describe_error(error)}") from error
        if isinstance(failure, AgentRLError):
            raise failure
        if failure is not None:
            raise EnvError(f"{call}: {failure}")
        return result


def main(control_fd: int) -> None:
    """Serve environments to the parent until it closes the control connection."""
    # An environment may print or close the standard streams, so the parent uses other descriptors.
    os.dup2(2, 1)
    # Make a crash in native code print the Python line that led to it.
    faulthandler.enable()
    # Otherwise child processes of an environment would keep the connection open after this
    # process ends.
    os.set_inheritable(control_fd, False)
    control = Connection(control_fd)
    control.send("ready")
    served: list[tuple[threading.Thread, Connection]] = []
    with suppress(OSError, EOFError):
        while True:
            os.set_inheritable(fd := recv_handle(control), False)
            connection = Connection(fd)
            thread = threading.Thread(target=_serve, args=(connection,), daemon=True)
            thread.start()
            served = [(thread, connection), *(one for one in served if one[0].is_alive())]
    for _, connection in served:
        with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as its_end:
            # The environment closes after the current call.
            its_end.shutdown(socket.SHUT_RD)
    end = time.monotonic() + CLOSE_S
    for thread, _ in served:
        thread.join(max(0.0, end - time.monotonic()))
    if late := sum(thread.is_alive() for thread, _ in served):
        sys.stderr.write(f"{pluralize(late, 'environment')} did not close within {CLOSE_S:g} s\n")
    # A normal exit would wait for threads that hang.
    os._exit(0)


def _serve(connection: Connection) -> None:
    """Execute one environment's calls, all in this thread."""
    environment: Any = None
    with suppress(OSError, EOFError):
        while True:
            what, arguments = pickle.loads(connection.recv_bytes())
            result: Any = None
            failure: AgentRLError | str | None = None
            try:
                match what:
                    case "make":
                        environment = resolve_env(**arguments).make()
                        spaces = environment.action_space, environment.observation_space
                        modes = environment.metadata.get("render_modes") or []
                        result = (*map(sendable, spaces), environment.render_mode, list(modes))
                    case "reset":
                        result = reset_env(environment, **arguments)
                    case "step":
                        result = step_env(environment, **arguments)
                    case "render":
                        result = environment.render()
                    case "close":
                        closed, environment = environment, None
                        closed.close()
            # An environment may even raise SystemExit.
            except BaseException as error:
                failure = error if isinstance(error, AgentRLError) else describe_error(error)
            try:
                answer = pickle.dumps((result, failure))
            # The info may contain something that cannot be pickled, such as a function.
            except Exception as error:
                answer = pickle.dumps((None, f"cannot send the result: {describe_error(error)}"))
            connection.send_bytes(answer)
    if environment is not None:
        try:
            environment.close()
        except BaseException as error:
            sys.stderr.write(f"closing an environment failed: {describe_error(error)}\n")
    connection.close()
