"""Run environments in other processes: they step in parallel, and a crash ends only one process.

Each process serves its environments over HTTP, like `agentrl serve-env`, to its parent only.
"""

import itertools
import json
import os
import secrets
import select
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

import gymnasium

from agentrl.config import EnvConfig, WrapperConfig
from agentrl.errors import ConfigError, EnvError
from agentrl.rollout.env_server import EnvServer, InvalidRequest
from agentrl.rollout.make_env import env_kwargs, make_env
from agentrl.rollout.remote_env import RemoteEnv, is_responding

_START_S = 60.0
_ANSWER_S = 2.0
"""For a process to show that it does not hang."""
_PARENT_CHECK_S = 1.0
"""How often a process checks that its parent is alive."""


class EnvProcesses:
    """Processes that are started when first needed, and restarted when they have died.

    Args:
        count: number of processes.
    """

    def __init__(self, count: int) -> None:
        self._token = secrets.token_hex(16)
        self._processes: list[tuple[subprocess.Popen[bytes], str] | None] = [None] * count
        self._turns = itertools.cycle(range(count))
        self._lock = threading.Lock()

    def make(
        self, config: EnvConfig, render_mode: str | None, deadline_s: float
    ) -> "gymnasium.Env[Any, Any]":
        """Make an environment, with its wrappers, in the next process.

        Raises:
            EnvError: the process does not start.
            ConfigError: the environment rejects its arguments.
        """
        with self._lock:
            url = self._url(next(self._turns), config)
        mode = {} if render_mode is None else {"render_mode": render_mode}
        return EnvInProcess(self, url, {**mode, **env_kwargs(config)}, deadline_s, self._token)

    def kill_if_hung(self, url: str) -> None:
        """Kill a process that does not respond; one in which a single environment hangs goes on."""
        if is_responding(url, _ANSWER_S):
            return
        with self._lock:
            for running in self._processes:
                if running is not None and running[1] == url:
                    running[0].kill()
                    running[0].wait()  # otherwise the next environment may be sent to it

    def _url(self, index: int, config: EnvConfig) -> str:
        running = self._processes[index]
        if running is None or running[0].poll() is not None:
            if running is not None:
                _kill(running[0])
            running = self._processes[index] = self._start(config)
        return running[1]

    def _start(self, config: EnvConfig) -> "tuple[subprocess.Popen[bytes], str]":
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C goes to this process, which closes them in order
        )
        path = [entry or os.getcwd() for entry in sys.path]
        spec = {"env": asdict(config), "path": path, "token": self._token, "parent": os.getpid()}
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(spec).encode() + b"\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], _START_S)[0]:
                raise EnvError(f"{config.id}: its process was not ready after {_START_S:g} s")
            url = process.stdout.readline().decode().strip()
            if not url:
                raise EnvError(f"{config.id}: its process ended with code {process.wait()}")
        except BaseException:
            _kill(process)
            raise
        return process, url

    def close(self) -> None:
        """Kill the processes, and all environments in them."""
        with self._lock:
            for index, running in enumerate(self._processes):
                if running is not None:
                    _kill(running[0])
                    self._processes[index] = None


def action_space_in_process(config: EnvConfig) -> "gymnasium.Space[Any]":
    """The action space of an environment, which is made once in another process.

    Raises:
        EnvError, ConfigError: as `EnvProcesses.make`.
    """
    processes = EnvProcesses(1)
    try:
        with closing(processes.make(config, None, _START_S)) as environment:
            return environment.action_space
    finally:
        processes.close()


class EnvInProcess(RemoteEnv):
    """An environment in one of the processes, which is killed if it hangs altogether."""

    def __init__(self, owner: EnvProcesses, url: str, *arguments: Any) -> None:
        self._owner = owner
        super().__init__(url, *arguments)

    def _answer(self, what: str, body: bytes) -> Any:
        try:
            return super()._answer(what, body)
        except TimeoutError:
            self._owner.kill_if_hung(self._url)
            raise


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _serve(spec: dict[str, Any], url_pipe: int) -> None:
    """Serve one kind of environment until the parent ends."""
    sys.path += [entry for entry in spec["path"] if entry not in sys.path]
    config = _parse_env_config(spec["env"])

    def make(**kwargs: Any) -> "gymnasium.Env[Any, Any]":
        try:
            return make_env(replace(config, kwargs=kwargs, translator_kwargs={}))
        except ConfigError as error:
            raise InvalidRequest(str(error)) from error

    server = EnvServer(make, ("127.0.0.1", 0), spec["token"], most=100_000, idle_s=86_400.0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.write(url_pipe, f"http://127.0.0.1:{server.server_address[1]}\n".encode())
    while os.getppid() == spec["parent"]:
        # Another child of the parent may keep the pipe open, so the parent's id is checked too.
        if select.select([0], [], [], _PARENT_CHECK_S)[0] and not os.read(0, 4096):
            return


def _parse_env_config(tree: dict[str, Any]) -> EnvConfig:
    wrappers: Sequence[dict[str, Any]] = tree.pop("wrappers")
    return EnvConfig(**tree, wrappers=[WrapperConfig(**wrapper) for wrapper in wrappers])


def main() -> None:
    """Serve the environment that the parent describes on standard input."""
    spec = json.loads(os.fdopen(os.dup(0), "rb", buffering=0).readline())
    # An environment's prints go to standard error: the parent reads exactly one line.
    url_pipe = os.dup(1)
    os.dup2(2, 1)
    _serve(spec, url_pipe)


if __name__ == "__main__":
    main()
