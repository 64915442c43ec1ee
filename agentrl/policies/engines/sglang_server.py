"""An SGLang server as a child process, and the client of its HTTP API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl import child_process, extras
from agentrl.errors import ConfigError, EngineError
from agentrl.policies.engines.http_connection import CONNECT_S, HttpConnection
from agentrl.text.formatting import quoted

# Maximum bytes of a response. A token with its log-probability takes about 50 bytes.
_LARGEST = 64 << 20
_POLL_S = 0.5
# Import agentrl first, because it makes broken builds of torchvision importable.
_SERVE = (
    "import agentrl, runpy; "
    "runpy.run_module('sglang.launch_server', run_name='__main__', alter_sys=True)"
)
# The last line of a traceback.
_ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception): ")
# Exit status of programs that reject their command line.
_BAD_ARGUMENTS = 2


class SGLangClient:
    """Client of a server whose requests and responses are JSON."""

    def __init__(self, url: str, in_flight: int) -> None:
        self._http = HttpConnection(
            url,
            # Plus one connection for `is_healthy`.
            in_flight + 1,
            largest=_LARGEST,
            advice=extras.NO_HTTP_CLIENT,
            headers={},
            uses_proxy=False,
        )
        self.url = self._http.url

    async def check_reachable(self) -> None:
        """Raise `ConfigError` if there is no server at the address."""
        if not await self.is_healthy():
            raise ConfigError(
                f"rollout.engine_kwargs.url={self.url}: no SGLang server answers at this address; "
                "start it (python -m sglang.launch_server --model-path MODEL) or correct the "
                "address"
            )

    async def is_healthy(self) -> bool:
        """Return whether the server is ready for requests."""
        with contextlib.suppress(EngineError, TimeoutError):
            async with asyncio.timeout(CONNECT_S):
                return (await self._http.send("GET", "/health"))[0] == 200
        return False

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a request, and return the JSON of the response."""
        what = f"{self.url}{path}"
        status, content, _ = await self._http.send("POST", path, json.dumps(dict(body)).encode())
        head = content[:4096].decode("utf-8", "replace")
        if status != 200:
            raise EngineError(f"{what} returned status {status}: {quoted(head, 300)}")
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise EngineError(f"{what} returned invalid JSON: {quoted(head, 80)}") from None

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        await self._http.close()


class SGLangServer:
    """A server on a free port of this machine.

    Args:
        folder: the model's folder.
        arguments: SGLang's server arguments, by name. True sets a flag, False leaves it out.
    """

    def __init__(self, folder: Path, arguments: Mapping[str, Any]) -> None:
        port = child_process.free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = tempfile.NamedTemporaryFile(prefix="agentrl-sglang-", suffix=".log")  # noqa: SIM115
        given = {"model_path": folder, "host": "127.0.0.1", "port": port, **arguments}
        self._process = child_process.start(
            [sys.executable, "-c", _SERVE, *_as_flags(given)],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )

    async def wait(self, client: SGLangClient, deadline_s: float) -> None:
        """Wait until the server answers requests."""
        try:
            async with asyncio.timeout(deadline_s):
                while not await client.is_healthy():
                    status, why = self._process.poll(), self._last_words
                    if status == _BAD_ARGUMENTS:
                        raise ConfigError(f"SGLang rejects rollout.engine_kwargs: {why()}")
                    if status is not None:
                        raise EngineError(f"SGLang exited with status {status}: {why()}")
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise EngineError(
                f"SGLang was not ready within {deadline_s:g} s (rollout.start_deadline_s): "
                f"{self._last_words()}"
            ) from None

    def _last_words(self) -> str:
        lines = Path(self._log.name).read_text("utf-8", "replace").strip().splitlines()
        # Prefer error lines, because the last lines only report that the server's processes ended.
        errors = [line for line in lines if _ERROR.match(line)]
        return quoted(" / ".join(errors[-1:] or lines[-3:]), 600)

    @property
    def is_alive(self) -> bool:
        """Whether the server's process is running."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the server and all of its processes. Idempotent."""
        child_process.end(self._process)
        self._log.close()


def _as_flags(arguments: Mapping[str, Any]) -> list[str]:
    flags: list[str] = []
    for name, value in arguments.items():
        if value is False or value is None:
            continue
        flags.append(f"--{name.replace('_', '-')}")
        if isinstance(value, dict):
            flags.append(json.dumps(value))
        elif value is not True:
            flags += [str(one) for one in value] if isinstance(value, list) else [str(value)]
    return flags
