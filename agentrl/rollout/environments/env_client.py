"""Client of an environment server as a Gymnasium environment."""

import http.client
import logging
import os
import secrets
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import gymnasium

from agentrl.errors import ConfigError, EnvError
from agentrl.rollout.environments.env_calls import LONGEST_ERROR
from agentrl.rollout.environments.env_server import (
    MAX_BYTES,
    VERSION,
    InvalidRequest,
    pack,
    unpack,
)

log = logging.getLogger(__name__)

_REFUSED = (400, 403)
"""HTTP statuses for invalid requests, which are not retried."""
_GONE = 410
"""HTTP status for requests to an environment that the server no longer has."""
_RETRY_S = 0.2
_PATIENCE_S = 1.0
"""Seconds to retry a broken connection unless `env.patience_s` is set."""


class _Socket(socket.socket):
    """Socket with a deadline for the whole response, in `time.monotonic` seconds."""

    end = 0.0

    def recv_into(self, *arguments: Any) -> int:
        """See socket.socket; raise TimeoutError after the deadline."""
        left_s = self.end - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer was not complete in time")
        self.settimeout(left_s)
        return super().recv_into(*arguments)


class _Connection(http.client.HTTPConnection):
    """HTTP connection with a deadline for each call as a whole."""

    sock: _Socket | None

    def connect(self) -> None:
        """See HTTPConnection."""
        super().connect()
        assert self.sock is not None
        self.sock = _Socket(fileno=self.sock.detach())

    def ask(self, path: str, body: bytes, headers: dict[str, str], deadline_s: float) -> Any:
        """Send a request, and return the response's status and body.

        Raises:
            OSError, http.client.HTTPException: no response came, or it was too long.
        """
        if self.sock is None:
            self.connect()
        assert self.sock is not None
        # A socket's own timeout restarts with each packet.
        self.sock.end = time.monotonic() + deadline_s
        self.sock.settimeout(deadline_s)
        self.request("POST", path, body, headers)
        answer = self.getresponse()
        if (answer.length or 0) > MAX_BYTES:
            raise http.client.HTTPException(
                f"the answer has {answer.length} bytes; the maximum is {MAX_BYTES}"
            )
        content = answer.read(MAX_BYTES)
        if answer.length:
            raise http.client.IncompleteRead(content, answer.length)
        return answer.status, content


class RemoteEnv(gymnasium.Env[Any, Any]):
    """An environment served by `agentrl serve-env`, with the same spaces and steps.

    Args:
        url: URL of the server, `http://HOST:PORT`.
        kwargs: arguments for the environment's constructor.
        deadline_s: time limit for each call, in seconds.
        patience_s: how long to wait for an unreachable server, in seconds.

    Raises:
        ConfigError: the URL is invalid, or the server rejects the arguments or the token.
        EnvError: no server answers.

    A call whose connection breaks is retried with the same number, so that the server never
    executes it twice. A restarted server has lost its episodes; the next reset recreates the
    environment.
    """

    metadata = {"render_modes": ["rgb_array", "ansi"]}  # noqa: RUF012 - until the server's arrive

    def __init__(
        self,
        url: str,
        kwargs: Mapping[str, Any] = MappingProxyType({}),
        deadline_s: float = 60.0,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._url, self._kwargs = url, dict(kwargs)
        self._deadline_s, self._patience_s = deadline_s, patience_s
        self._http = _Connection(*_host_and_port(url), deadline_s)
        self._token = os.environ.get("AGENTRL_ENV_TOKEN", "")
        self._seed: int | None = None
        self._is_gone = False
        try:
            self._open()
        except BaseException:
            self._http.close()
            raise

    def _open(self) -> None:
        self._key, self._number, self._is_gone = secrets.token_hex(16), 0, False
        request = {"key": self._key, "kwargs": self._kwargs, "version": VERSION}
        spec = self._ask("open", request)
        try:
            version = spec.get("version", 0)
            self.action_space = spec["action_space"]
            self.observation_space = spec["observation_space"]
            self.render_mode = spec["render_mode"]
            self.metadata = spec["metadata"]
        except (KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"env.id={self._url} is not an environment server") from error
        if version != VERSION:
            raise ConfigError(
                f"env.id={self._url}: the server uses protocol version {version}, but this agentrl "
                f"uses {VERSION}; copy the program again (agentrl serve-env --program), or use the "
                "same version of agentrl on both sides"
            )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """See gymnasium.Env.reset; raise EnvError if the server fails."""
        super().reset(seed=seed)
        self._seed = seed
        try:
            answer = self._call("reset", {"seed": seed, "options": options})
        # The server was restarted, or closed the idle environment.
        except EnvError:
            if not self._is_gone:
                raise
            self._open()
            answer = self._call("reset", {"seed": seed, "options": options})
        return answer["observation"], answer["info"]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """See gymnasium.Env.step; raise EnvError if the server fails."""
        answer = self._call("step", {"action": action})
        ends = answer["terminated"], answer["truncated"]
        return answer["observation"], float(answer["reward"]), *ends, answer["info"]

    def render(self) -> Any:
        """See gymnasium.Env.render; raise EnvError if the server fails."""
        return self._call("render", {})["drawn"]

    def close(self) -> None:
        """Close the server's environment, if it can be reached."""
        if self._key:
            # An unreachable server closes the environment after its idle timeout.
            with suppress(EnvError):
                if problem := self._ask("close", {"key": self._key}, patience_s=0.0):
                    log.warning("closing %s failed: %s", self._url, problem)
            self._key = ""
        self._http.close()

    def _call(self, what: str, message: dict[str, Any]) -> Any:
        self._number += 1
        return self._ask(what, {**message, "key": self._key, "number": self._number})

    def _ask(self, what: str, request: dict[str, Any], patience_s: float | None = None) -> Any:
        """Send a request, with retries, and return the server's answer.

        Raises:
            ConfigError: the server refuses to create the environment.
            EnvError: the server refuses any other call, is unreachable, or does not answer in time.
        """
        body = pack(request)
        patience_s = self._patience_s if patience_s is None else patience_s
        end = time.monotonic() + patience_s
        while True:
            try:
                return self._answer(what, body)
            except TimeoutError as error:
                self._http.close()
                raise EnvError(
                    f"{self._call_name(what)}: no answer within {self._deadline_s:g} s "
                    "(rollout.deadline_s)"
                ) from error
            except (OSError, http.client.HTTPException) as error:
                self._http.close()
                if time.monotonic() >= end:
                    is_down = isinstance(error, ConnectionRefusedError)
                    hint = "; start a server with agentrl serve-env" if is_down else ""
                    raise EnvError(
                        f"{self._call_name(what)}: {type(error).__name__}: {error} (unreachable "
                        f"for {patience_s:g} s, env.patience_s{hint})"
                    ) from error
                time.sleep(_RETRY_S)

    def _call_name(self, what: str) -> str:
        """Return a call's name for messages, including the episode's seed."""
        seed = "" if what == "open" or self._seed is None else f" (seed {self._seed})"
        return f"{self._url}/{what}{seed}"

    def _answer(self, what: str, body: bytes) -> Any:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        status, answer = self._http.ask(f"/{what}", body, headers, self._deadline_s)
        try:
            content = unpack(answer)
            why = "" if status == 200 else str(content["error"])[: 2 * LONGEST_ERROR]
        except (InvalidRequest, KeyError, TypeError) as error:
            raise EnvError(
                f"{self._call_name(what)}: HTTP {status}: not an environment server: {error}"
            ) from error
        if status in _REFUSED and what == "open":
            raise ConfigError(f"env.id={self._url}: {why}")
        if status != 200:
            self._is_gone = status == _GONE
            raise EnvError(f"{self._call_name(what)}: HTTP {status}: {why}")
        return content


def _host_and_port(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        if parts.scheme == "http" and parts.hostname and not parts.path.strip("/"):
            return parts.hostname, parts.port or 80
    # `urlsplit` raises ValueError for an invalid port or address.
    except ValueError:
        pass
    raise ConfigError(f"env.id={url}: must have the form http://HOST:PORT")


def make_remote_env(
    agentrl_target: str,
    agentrl_deadline_s: float = 60.0,
    agentrl_patience_s: float = _PATIENCE_S,
    **kwargs: Any,
) -> RemoteEnv:
    """Create a remote environment for `gymnasium.make`, passing it all other arguments."""
    return RemoteEnv(agentrl_target, kwargs, agentrl_deadline_s, patience_s=agentrl_patience_s)
