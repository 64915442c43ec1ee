"""Serve a Gymnasium environment over HTTP, even where agentrl is not installed.

`agentrl serve-env --program` prints this file as a program that needs only Python 3.9, numpy and
gymnasium: copy it to where the environment can be imported, and run

    python serve_env.py module:Class --port 8100

Each client gets its own environment in its own thread. A message is a JSON header followed by the
bytes of its arrays: see `pack`. No received data is ever executed.
"""

from __future__ import annotations

import argparse
import hmac
import importlib
import importlib.util
import json
import os
import queue
import re
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agentrl.cross_origin_requests import foreign_request, is_loopback
from agentrl.rollout.environments.env_calls import describe_error, reset_env, step_env

VERSION = 1
"""Protocol version; client and server must use the same."""
CLOSE_S = 10.0
"""Seconds to wait for an environment's `close()`."""
MAX_BYTES = 1 << 28
"""Maximum size of a message in bytes."""
_GONE = 410
"""HTTP status for requests to an environment that no longer exists."""
_MAX_UNUSED = 64
"""Maximum number of connections that have not sent a request, in addition to one for each
environment that can be open; beyond that, the oldest connection is closed."""
_CALL_S = 300.0
"""Time limit in seconds for a call of an environment."""
_FIRST_REQUEST_S = 30.0
"""Seconds a new connection has to send its first request."""
_IDLE_CONNECTION_S = 3600.0


class InvalidRequest(ValueError):
    """An invalid request or message, by the client's mistake."""


class NoSuchEnv(InvalidRequest):
    """The client's environment was closed, or the server was restarted."""


def pack(value: Any) -> bytes:
    """Serialize numbers, text, None, lists, tuples, dictionaries, arrays and spaces.

    Raises:
        InvalidRequest: the value contains something else.
    """
    blocks: list[bytes] = []
    head = json.dumps(_encode(value, blocks), allow_nan=True).encode()
    return b"".join([struct.pack("<I", len(head)), head, *blocks])


def unpack(message: bytes) -> Any:
    """Deserialize the output of `pack`; raise `InvalidRequest` for anything else."""
    try:
        (size,) = struct.unpack_from("<I", message)
        if size > len(message) - 4:
            raise InvalidRequest("the message is incomplete")
        head = json.loads(message[4 : 4 + size])
        return _decode(head, memoryview(message)[4 + size :])
    except (struct.error, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidRequest(f"the message is not valid: {type(error).__name__}: {error}") from None


def _encode(value: Any, blocks: list[bytes]) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufU":
            raise InvalidRequest(f"an array of {value.dtype} cannot be sent")
        start = sum(map(len, blocks))
        blocks.append(np.ascontiguousarray(value).tobytes())
        return {"$array": [value.dtype.str, list(value.shape), start, len(blocks[-1])]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple):
        return {"$tuple": [_encode(part, blocks) for part in value]}
    if isinstance(value, list):
        return [_encode(part, blocks) for part in value]
    if isinstance(value, spaces.Space):
        return {"$space": [type(value).__name__, _encode(_arguments(value), blocks)]}
    if hasattr(value, "items"):
        if any(not isinstance(key, str) or key.startswith("$") for key in value):
            raise InvalidRequest(
                f"the keys {list(value)[:5]} cannot be sent; keys must be strings without leading $"
            )
        return {key: _encode(part, blocks) for key, part in value.items()}
    raise InvalidRequest(f"a {type(value).__name__} cannot be sent")


def _decode(value: Any, data: memoryview) -> Any:
    if isinstance(value, list):
        return [_decode(part, data) for part in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        kind, shape, start, size = value["$array"]
        dtype = np.dtype(str(kind))
        if dtype.kind not in "biufU":
            raise InvalidRequest(f"an array of {dtype} is not accepted")
        return np.frombuffer(data[start : start + size], dtype).reshape(shape).copy()
    if "$tuple" in value:
        return tuple(_decode(part, data) for part in value["$tuple"])
    if "$space" in value:
        name, arguments = value["$space"]
        if name not in SPACES:
            raise InvalidRequest(f"a space of type {name!r} is not accepted")
        return SPACES[name](_decode(arguments, data))
    return {key: _decode(part, data) for key, part in value.items()}


SPACES: dict[str, Callable[[dict[str, Any]], spaces.Space[Any]]] = {
    "Discrete": lambda a: spaces.Discrete(a["n"], start=a["start"]),
    "MultiDiscrete": lambda a: spaces.MultiDiscrete(a["nvec"], start=a["start"]),
    "MultiBinary": lambda a: spaces.MultiBinary(a["n"]),
    "Box": lambda a: spaces.Box(a["low"], a["high"], dtype=np.dtype(a["dtype"])),
    "Text": lambda a: spaces.Text(a["most"], min_length=a["least"], charset=a["letters"]),
    "Tuple": lambda a: spaces.Tuple(a["parts"]),
    "Dict": lambda a: spaces.Dict(dict(a["parts"])),
    "OpaqueSpace": lambda a: OpaqueSpace(a["description"], a["is_text"]),
}


def is_text_space(space: spaces.Space[Any]) -> bool:
    """Return whether a space contains only strings, including text spaces of other packages."""
    if space.shape is not None or space.dtype is not None:
        return isinstance(space, spaces.Text)
    return space.contains("a") and not space.contains(0)


class OpaqueSpace(spaces.Space[Any]):
    """A space of unknown type, which accepts every value, or every text."""

    def __init__(self, description: str, is_text: bool = False) -> None:
        super().__init__()
        self.description, self.is_text = description, is_text

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """Raise an error: the space's type is unknown here."""
        raise NotImplementedError(f"{self} cannot be sampled here")

    def contains(self, x: Any) -> bool:
        """Return whether `x` may be in the space; only the server can be sure."""
        return isinstance(x, str) or not self.is_text

    def __repr__(self) -> str:
        return self.description

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueSpace) and other.description == self.description

    __hash__ = None  # type: ignore[assignment]


def _arguments(space: Any) -> dict[str, Any]:
    if isinstance(space, spaces.Discrete):
        return {"n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"nvec": space.nvec, "start": space.start}
    if isinstance(space, spaces.MultiBinary):
        return {"n": space.n if isinstance(space.n, int) else list(map(int, space.shape))}
    if isinstance(space, spaces.Box):
        return {"low": space.low, "high": space.high, "dtype": np.dtype(space.dtype).str}
    if isinstance(space, spaces.Text):
        letters = "".join(sorted(space.character_set))
        return {"most": space.max_length, "least": space.min_length, "letters": letters}
    if isinstance(space, spaces.Tuple):
        return {"parts": tuple(space.spaces)}
    if isinstance(space, spaces.Dict):
        return {"parts": [[key, part] for key, part in space.spaces.items()]}
    return {"description": repr(space)[:200], "is_text": is_text_space(space)}


def sendable(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return the space, or an `OpaqueSpace` with its description if its type cannot be sent."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: sendable(part) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([sendable(part) for part in space.spaces])
    kinds = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box, spaces.Text)
    return space if type(space) in kinds else OpaqueSpace(repr(space)[:200], is_text_space(space))


class EnvThread:
    """One client's environment and the thread that runs it."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._calls: queue.Queue[tuple[Future[Any], str, dict[str, Any]] | None] = queue.Queue()
        self.used_at = time.monotonic()
        self._last: tuple[int, Future[Any]] = (-1, Future())
        self._make = make
        self._env: Any = None
        self._closed: Future[None] = Future()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def ask(self, number: int, what: str, arguments: dict[str, Any], deadline_s: float) -> Any:
        """Execute one call; a retry with the same number returns the original result."""
        self.used_at = time.monotonic()
        if number != self._last[0]:
            self._last = (number, Future())
            self._calls.put((self._last[1], what, arguments))
        try:
            return self._last[1].result(deadline_s)
        except LateError:
            raise TimeoutError(f"{what} took longer than {deadline_s:g} s") from None
        finally:
            self.used_at = time.monotonic()

    def close(self) -> None:
        """Close the environment as soon as its thread is free, without waiting."""
        self._calls.put((self._closed, "close", {}))
        self._calls.put(None)

    def join(self, seconds: float) -> str | None:
        """Wait until the environment is closed, and return an error message if that failed."""
        try:
            self._closed.result(max(0.0, seconds))
        except LateError:
            return f"it did not close within {CLOSE_S:g} s"
        except BaseException as error:
            return describe_error(error)
        return None

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            answer, what, arguments = call
            try:
                answer.set_result(self._execute(what, arguments))
            except BaseException as error:
                answer.set_exception(error)

    def _execute(self, what: str, arguments: dict[str, Any]) -> Any:
        if what == "open":
            self._env = self._make(**arguments["kwargs"])
            return {
                "action_space": sendable(self._env.action_space),
                "observation_space": sendable(self._env.observation_space),
                "render_mode": self._env.render_mode,
                "metadata": {"render_modes": list(self._env.metadata.get("render_modes") or [])},
            }
        if what == "reset":
            observation, info = reset_env(self._env, **arguments)
            return {"observation": observation, "info": info}
        if what == "step":
            observation, reward, terminated, truncated, info = step_env(self._env, **arguments)
            # `float` would accept a string.
            if isinstance(reward, str):
                raise TypeError(f"the reward is {reward!r} (str), not a number")
            return {
                "observation": observation,
                "reward": float(reward),
                "terminated": terminated,
                "truncated": truncated,
                "info": info,
            }
        if what == "render":
            return {"drawn": self._env.render()}
        env, self._env = self._env, None
        if env is not None:
            env.close()
        return None


class EnvServer(ThreadingHTTPServer):
    """An HTTP server with one environment per client key.

    Args:
        make: creates an environment with the client's keyword arguments.
        address: host and port; port 0 takes a free one.
        token: token that clients must send; may be empty only for a loopback address.
        most: maximum number of open environments.
        idle_s: seconds after which an unused environment is closed.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024
    """Backlog for clients that connect simultaneously, as at the start of a step; the default of 5
    would reset most of their connections."""

    def __init__(
        self,
        make: Callable[..., Any],
        address: tuple[str, int],
        token: str = "",
        most: int = 256,
        idle_s: float = 900.0,
    ) -> None:
        if not is_loopback(address[0]) and not token:
            raise InvalidRequest(
                f"{address[0]} is reachable from other machines; set AGENTRL_ENV_TOKEN"
            )
        self.make, self.token, self.most = make, token, most
        self.idle_s, self.host = idle_s, address[0]
        self._unused: dict[Any, None] = {}
        self._env_threads: dict[str, EnvThread] = {}
        self._lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        # The base class closes the socket if it cannot listen.
        super().__init__(address, RequestHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread."""
        with self._lock:
            self._unused[request] = None
            is_full = len(self._unused) > self.most + _MAX_UNUSED
            oldest = next(iter(self._unused)) if is_full else request
            if oldest is not request:
                del self._unused[oldest]
        if oldest is not request:
            # The client may have just closed the connection.
            with suppress(OSError):
                # The connection's thread stops reading, and ends.
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.note_use(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error unless it only means that the client disconnected."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def note_use(self, connection: Any) -> None:
        """Record that a connection has sent a request."""
        with self._lock:
            self._unused.pop(connection, None)

    def service_actions(self) -> None:
        """Close idle environments."""
        late = time.monotonic() - self.idle_s
        with self._lock:
            idle = [key for key, thread in self._env_threads.items() if thread.used_at < late]
            threads = [self._env_threads.pop(key) for key in idle]
        for thread in threads:
            thread.close()

    def open(self, key: str, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Create a client's environment under its random key; return its spaces and metadata."""
        if not re.fullmatch("[0-9a-f]{32}", key):
            raise InvalidRequest("a key must consist of 32 random hexadecimal digits")
        with self._lock:
            if key not in self._env_threads:
                if len(self._env_threads) >= self.most:
                    raise InvalidRequest(
                        f"{self.most} environments are already open; close some, or raise --most"
                    )
                self._env_threads[key] = EnvThread(self.make)
            thread = self._env_threads[key]
        try:
            spec: dict[str, Any] = thread.ask(0, "open", {"kwargs": kwargs}, _CALL_S)
            return spec
        # The constructor may reject an argument.
        except TypeError as error:
            self.close(key)
            raise InvalidRequest(describe_error(error)) from error
        except BaseException:
            self.close(key)
            raise

    def close(self, key: str, wait_s: float = 0.0) -> str | None:
        """Close a client's environment, wait, and return an error message if that failed."""
        with self._lock:
            thread = self._env_threads.pop(key, None)
        if thread is None:
            return None
        thread.close()
        return thread.join(wait_s)

    def server_close(self) -> None:
        """Stop listening, close all environments, and wait at most `CLOSE_S` for them."""
        super().server_close()
        with self._lock:
            threads = list(self._env_threads.values())
            self._env_threads.clear()
        end = time.monotonic() + CLOSE_S
        for thread in threads:
            thread.close()
        for thread in threads:
            if problem := thread.join(end - time.monotonic()):
                sys.stderr.write(f"closing an environment failed: {problem}\n")

    def env_thread(self, key: str) -> EnvThread:
        """Look up a client's environment."""
        with self._lock:
            if key not in self._env_threads:
                raise NoSuchEnv(
                    "this environment no longer exists: it was closed, was idle for too long, or "
                    "the server was restarted"
                )
            return self._env_threads[key]

    def answer(self, what: str, message: dict[str, Any]) -> Any:
        """Execute a client's request, and return the response's content."""
        key = str(message.pop("key", ""))
        if what == "open":
            if message.get("version", VERSION) != VERSION:
                raise InvalidRequest(
                    f"the client uses protocol version {message['version']}, but this server uses "
                    f"{VERSION}; use the same version of agentrl on both sides"
                )
            return {**self.open(key, dict(message.get("kwargs", {}))), "version": VERSION}
        if what == "close":
            return self.close(key, CLOSE_S)
        if what not in ("reset", "step", "render"):
            raise InvalidRequest(f"unknown path /{what}")
        number, thread = int(message.pop("number", -1)), self.env_thread(key)
        try:
            return thread.ask(number, what, message, _CALL_S)
        except TimeoutError:
            # The thread may be stuck forever.
            self.close(key)
            raise


class RequestHandler(BaseHTTPRequestHandler):
    """Handler of one client connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    timeout = _FIRST_REQUEST_S

    server: EnvServer

    def do_POST(self) -> None:
        """Execute a call; an error response has the error's message, never a traceback."""
        try:
            status, answer = 200, self.server.answer(self.path.strip("/"), self._message())
            body = pack(answer)
        except InvalidRequest as error:
            status = _GONE if isinstance(error, NoSuchEnv) else 400
            body = pack({"error": str(error)})
        except PermissionError as error:
            status, body = 403, pack({"error": str(error)})
        # An environment may even raise SystemExit.
        except BaseException as error:
            status, body = 500, pack({"error": describe_error(error)})
        self.send_response(status)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _message(self) -> dict[str, Any]:
        close, self.close_connection = self.close_connection, True
        if why := foreign_request(self.headers, self.server.host):
            raise PermissionError(why)
        given = self.headers.get("Authorization", "")
        expected = f"Bearer {self.server.token}"
        if self.server.token and not hmac.compare_digest(given.encode(), expected.encode()):
            raise PermissionError("the token is missing or wrong (AGENTRL_ENV_TOKEN)")
        size = int(self.headers.get("Content-Length", -1))
        if not 0 <= size <= MAX_BYTES:
            raise InvalidRequest(f"a message must have 0 to {MAX_BYTES} bytes, not {size}")
        message = unpack(self.rfile.read(size))
        self.server.note_use(self.connection)
        self.connection.settimeout(_IDLE_CONNECTION_S)
        # An unread body would be parsed as the next request.
        self.close_connection = close
        if not isinstance(message, dict):
            raise InvalidRequest("a message must be a dictionary")
        return message

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, as calls are frequent."""


def env_factory(name: str) -> Callable[..., Any]:
    """Return the factory for an id, `module:Class`, `module:Id` or `path/file.py:Class`."""
    module, _, last = name.rpartition(":")
    if module.endswith(".py"):
        path = os.path.abspath(module)
        sys.path.insert(0, os.path.dirname(path))
        module = os.path.splitext(os.path.basename(path))[0]
    kind: Callable[..., Any] | None = (
        getattr(importlib.import_module(module), last, None) if module else None
    )
    if kind is not None:
        return kind
    gymnasium.spec(last)
    return lambda **kwargs: gymnasium.make(last, **kwargs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="Serve a Gymnasium environment over HTTP.")
    parser.add_argument("environment", help="an id, module:Class or path/file.py:Class")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--most", type=int, default=256, help="maximum number of open environments")
    parser.add_argument(
        "--idle", type=float, default=900.0, help="seconds until an idle environment is closed"
    )
    given = parser.parse_args(arguments)
    token = os.environ.get("AGENTRL_ENV_TOKEN", "")
    sys.path.insert(0, os.getcwd())
    make = env_factory(given.environment)
    host = f"[{given.host}]" if ":" in given.host else given.host
    try:
        server = EnvServer(make, (given.host, given.port), token, given.most, given.idle)
    except OSError as error:
        raise SystemExit(f"cannot listen on {host}:{given.port}: {error}") from None
    # Close environments on SIGTERM, too, not just on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    port = server.server_address[1]
    sys.stdout.write(f"{given.environment} at http://{host}:{port}\n")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.stdout.write("stopped\n")
    finally:
        server.server_close()


if __name__ == "__main__":
    main()
