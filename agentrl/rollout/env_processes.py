"""Run environments in other processes: they step in parallel, and a crash ends only one process.

Each process serves its environments over HTTP, like `agentrl serve-env`, to its parent only.
"""

import faulthandler
import http.client
import itertools
import json
import logging
import os
import secrets
import select
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

import gymnasium
import psutil

from agentrl import child_process
from agentrl.child_process import descendants, describe_exit
from agentrl.config import EnvConfig, WrapperConfig
from agentrl.env import interface_of
from agentrl.errors import ConfigError, EnvCrashed, EnvError, EnvLost, message_of
from agentrl.rollout.env_server import CLOSE_S, EnvServer, InvalidRequest
from agentrl.rollout.remote_env import RemoteEnv, is_responding
from agentrl.rollout.resolved_env import ResolvedEnv, resolve_env, with_text_actions
from agentrl.text import pluralize

log = logging.getLogger(__name__)

_ITS_PROCESS = "its process (env.processes)"
_START_S = 60.0
_ANSWER_S = 2.0
"""How long a process may take to show that it does not hang."""
_END_S = 5.0
"""How long a process may take to end once nothing keeps it."""
_MEMORY_CHECK_S = 10.0
"""Seconds between measurements of a process's memory."""
_GROWTH_BYTES = 1 << 30
"""Growth that is reported, if it also doubles the memory."""


class EnvProcesses:
    """Processes that are started when first needed, and restarted when they have died.

    Args:
        count: number of processes; `each` for one per environment, which ends with it.
    """

    def __init__(self, count: int | str) -> None:
        self._token = secrets.token_hex(16)
        self._one_each = isinstance(count, str)
        count = 0 if isinstance(count, str) else count
        self._processes: list[tuple[subprocess.Popen[bytes], str] | None] = [None] * count
        self._calls: dict[str, int] = defaultdict(int)
        """Number of calls that a process is executing, by its URL."""
        self._memory: dict[str, tuple[float, int]] = {}
        """Time of the last measurement of a process's memory, and the baseline; by URL."""
        self._replaced: dict[str, int] = {}
        """Return codes of processes that have ended and were replaced, by URL."""
        self._killed: set[str] = set()
        """URLs of processes that were killed because they hung."""
        self._turns = itertools.cycle(range(count))
        self._lock = threading.Lock()

    def make(
        self, env: ResolvedEnv, render_mode: str | None, deadline_s: float
    ) -> "gymnasium.Env[Any, Any]":
        """Make an environment, with its wrappers, in the next process or in one of its own.

        Raises:
            EnvError: the process does not start.
            ConfigError: the environment rejects its arguments.
        """
        url = self.find_place(env.settings)
        mode = {} if render_mode is None else {"render_mode": render_mode}
        kwargs = {**mode, **env.kwargs, **env.remote_kwargs(deadline_s)}
        try:
            with env.named_keys():
                made = EnvInProcess(self, env.settings, url, kwargs, deadline_s, self._token)
        except BaseException:
            self.release(url)
            raise
        return with_text_actions(made)

    def find_place(self, config: EnvConfig) -> str:
        """Return the URL of the process in which to make an environment.

        Raises:
            EnvError: the process does not start.
        """
        if not self._one_each:
            with self._lock:
                return self._url(next(self._turns), config)
        started = self._start(config)
        with self._lock:
            self._processes.append(started)
        return started[1]

    def release(self, url: str) -> None:
        """End the process of an environment that is closed, unless others share it."""
        if not self._one_each:
            return
        with self._lock:
            ended = [one for one in self._processes if one is not None and one[1] == url]
            self._processes = [one for one in self._processes if one not in ended]
        for process, _ in ended:
            child_process.end(process)

    @contextmanager
    def calling(self, url: str) -> Iterator[None]:
        """Count a call that a process executes."""
        with self._lock:
            self._calls[url] += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls[url] -= 1

    def is_running(self, url: str) -> bool:
        """Whether a process has not ended."""
        process = self._process_at(url)
        return process is not None and process.poll() is None

    def check_ended(self, url: str, call: str) -> None:
        """Find out whether a call failed because the process ended.

        Raises:
            EnvCrashed: it has ended by itself; names how, and how many calls were under way.
            EnvLost: it was killed because another of its environments hung.
        """
        process = self._process_at(url)
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)  # its connections break before it has ended
        code = self._replaced.get(url) if process is None else process.returncode
        if code is None:
            return
        if url in self._killed:
            raise EnvLost(
                f"{call}: {_ITS_PROCESS} was killed because another of its environments hung"
            )
        others = self._calls[url] - 1
        also = f", while it also executed {pluralize(others, 'other call')}" if others > 0 else ""
        raise EnvCrashed(f"{call}: {_ITS_PROCESS} ended with {describe_exit(code)}{also}")

    def check_memory(self, url: str, id: str) -> None:
        """Warn if a process, with all that it has started, has grown by much."""
        checked_at, base = self._memory.get(url, (0.0, 0))
        if time.monotonic() - checked_at < _MEMORY_CHECK_S or not (
            process := self._process_at(url)
        ):
            return
        now = sum(map(resident_bytes, descendants(process.pid)))
        grown = base and now > max(2 * base, base + _GROWTH_BYTES)
        self._memory[url] = time.monotonic(), now if grown or not base else base
        if grown:
            log.warning(
                "%s: the memory of one of its processes (env.processes) has grown from %.1f to "
                "%.1f GB: it keeps what it should release on reset",
                id,
                base / 1e9,
                now / 1e9,
            )

    def _process_at(self, url: str) -> "subprocess.Popen[bytes] | None":
        with self._lock:
            return next((p for p, at in filter(None, self._processes) if at == url), None)

    def kill_if_hung(self, url: str, call: str) -> None:
        """Kill a process that does not respond; one in which a single environment hangs goes on.

        Raises:
            EnvCrashed: it was killed.
        """
        process = self._process_at(url)
        if process is not None and not is_responding(url, _ANSWER_S):
            self._killed.add(url)
            process.terminate()
            process.wait()  # otherwise the next environment may be sent to it
            raise EnvCrashed(f"{call}: {_ITS_PROCESS} stopped responding and was killed")

    def _url(self, index: int, config: EnvConfig) -> str:
        running = self._processes[index]
        if running is None or running[0].poll() is not None:
            if running is not None:
                child_process.end(running[0])
                self._replaced[running[1]] = running[0].returncode
            running = self._processes[index] = self._start(config)
        return running[1]

    def _start(self, config: EnvConfig) -> "tuple[subprocess.Popen[bytes], str]":
        process = child_process.start(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        path = [entry or os.getcwd() for entry in sys.path]
        spec = {"env": asdict(config), "path": path, "token": self._token}
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(spec).encode() + b"\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], _START_S)[0]:
                raise EnvError(f"{config.id}: its process was not ready after {_START_S:g} s")
            url = process.stdout.readline().decode().strip()
            if not url:
                raise EnvError(
                    f"{config.id}: its process ended with {describe_exit(process.wait())}"
                )
        except BaseException:
            child_process.end(process)
            raise
        return process, url

    def close(self) -> None:
        """Close all environments, within a bound, and end everything that they have started."""
        with self._lock:
            running = [process for process, _ in filter(None, self._processes)]
            self._processes = [None] * len(self._processes)
        for process in running:
            assert process.stdin is not None
            process.stdin.close()  # asks it to close its environments and to end
        end = time.monotonic() + CLOSE_S + _END_S
        for process in running:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("an environment process did not end within %g s: killed", CLOSE_S)
            child_process.end(process)


def interface_in_process(env: ResolvedEnv) -> dict[str, Any]:
    """The interface of an environment, which is made once in another process.

    Raises:
        EnvError, ConfigError: as `EnvProcesses.make`.
    """
    processes = EnvProcesses(1)
    try:
        with closing(processes.make(env, None, _START_S)) as environment:
            return interface_of(environment)
    finally:
        processes.close()


class EnvInProcess(RemoteEnv):
    """An environment in one of the processes, which is killed if it hangs altogether."""

    def __init__(
        self,
        owner: EnvProcesses,
        config: EnvConfig,
        url: str,
        kwargs: Mapping[str, Any],
        deadline_s: float,
        token: str,
    ) -> None:
        self._owner, self._config = owner, config
        super().__init__(url, kwargs, deadline_s, token, name=config.id)

    def _open(self) -> None:
        if not self._owner.is_running(self._url):  # it ended before this reset
            self._http.close()
            self._connect_to(self._owner.find_place(self._config))
        super()._open()

    def close(self) -> None:
        """See RemoteEnv.close; a process of its own ends, too."""
        super().close()
        self._owner.release(self._url)

    def _answer(self, what: str, body: bytes) -> Any:
        call = self._call_name(what)
        if not self._owner.is_running(self._url):
            self._is_gone = True
            how = "crashed or hung"
            raise EnvLost(
                f"{call}: {_ITS_PROCESS} had ended because another of its environments {how}"
            )
        try:
            with self._owner.calling(self._url):
                try:
                    return super()._answer(what, body)
                except TimeoutError:
                    self._owner.kill_if_hung(self._url, call)
                    raise
                except (OSError, http.client.HTTPException):
                    self._owner.check_ended(self._url, call)
                    raise
        finally:
            if what != "open":  # much of it, such as a browser, only starts with the first episode
                self._owner.check_memory(self._url, self._name)

    def _call_name(self, what: str) -> str:
        name = "its constructor" if what == "open" else f"{what}()"
        seed = "" if self._seed is None else f" (seed {self._seed})"
        return f"{self._name}: {name}{seed}"


def resident_bytes(pid: int) -> int:
    """The memory of a process; 0 if it has ended."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _serve(spec: dict[str, Any], control: int, url_pipe: int) -> None:
    """Serve one kind of environment until the parent closes its end of `control`."""
    sys.path += [entry for entry in spec["path"] if entry not in sys.path]
    config = _parse_env_config(spec["env"])

    def make(**kwargs: Any) -> "gymnasium.Env[Any, Any]":
        try:
            own = replace(config, kwargs=kwargs, translator_kwargs={})
            return resolve_env(own).make()
        except ConfigError as error:
            raise InvalidRequest(message_of(error)) from error

    server = EnvServer(make, ("127.0.0.1", 0), spec["token"], most=100_000, idle_s=86_400.0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.write(url_pipe, f"http://127.0.0.1:{server.server_address[1]}\n".encode())
    while os.read(control, 4096):
        pass
    server.shutdown()
    server.server_close()


def _parse_env_config(tree: dict[str, Any]) -> EnvConfig:
    wrappers: Sequence[dict[str, Any]] = tree.pop("wrappers")
    return EnvConfig(**tree, wrappers=[WrapperConfig(**wrapper) for wrapper in wrappers])


def main() -> None:
    """Serve the environment that the parent describes on standard input."""
    # An environment may read, print, and close the standard streams: the parent uses others.
    control, url_pipe = os.dup(0), os.dup(1)
    spec = json.loads(os.fdopen(control, "rb", buffering=0, closefd=False).readline())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    faulthandler.enable()  # a crash in native code names the line that led to it
    _serve(spec, control, url_pipe)
    os._exit(0)  # do not wait for threads that hang


if __name__ == "__main__":
    main()
