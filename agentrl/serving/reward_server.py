"""Serve a reward function over HTTP: for `agentrl.rewards.remote:Remote`, and for OpenRLHF.

::

    POST /score       {"inputs": [{...}, ...]}   ->   {"rows": [{"overall": 1.0, ...}, ...]}
    POST /get_reward  {"query": [...], "prompts": [...], "labels": [...]}
                                                 ->   {"rewards": [...], ...}
    GET  /health                                 ->   {"function": "..."}

The row of an episode that could not be scored is `{"error": "why"}`, and `{}` if the function does
not apply to it. `/get_reward` is for
OpenRLHF's `--remote_rm_url`, which has no such rows: it answers 500.
"""

import asyncio
import hmac
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from agentrl.config import RewardConfig
from agentrl.data import image_loading, openrlhf
from agentrl.data.openrlhf import CHATML
from agentrl.errors import AgentRLError, ConfigError, RewardError, describe_error
from agentrl.rollout.reward_adapters import OVERALL, RewardInputs
from agentrl.rollout.reward_pool import RewardPool
from agentrl.rollout.reward_signatures import RewardSpec
from agentrl.text import is_loopback, printable

log = logging.getLogger(__name__)

_MAX_BYTES = 256 << 20
"""Maximum bytes of a request: about 64 episodes with their images."""


class _Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class RewardServer:
    """Calls one batch function in a process of its own.

    Args:
        name: name of the function.
        pool: of the function.
        token: token that requests must send; None accepts every request.
    """

    def __init__(self, name: str, pool: RewardPool, token: str | None = None) -> None:
        self._name, self._pool, self._token = name, pool, token

    def application(self) -> FastAPI:
        """The ASGI application."""
        app = FastAPI(title="agentrl reward server", docs_url=None, redoc_url=None)
        app.add_api_route("/score", self._score, methods=["POST"])
        app.add_api_route("/get_reward", self._get_reward, methods=["POST"])
        app.add_api_route("/health", self._health, methods=["GET"])
        return app

    async def _health(self) -> JSONResponse:
        return JSONResponse({"function": self._name})

    async def _score(self, request: Request) -> JSONResponse:
        try:
            inputs = _inputs(await self._body(request))
            return JSONResponse({"rows": await self._rows(inputs)})
        except _Refused as refused:
            return JSONResponse({"error": printable(str(refused))}, status_code=refused.status)

    async def _get_reward(self, request: Request) -> JSONResponse:
        try:
            content = _parsed(await self._body(request))
            try:
                inputs = openrlhf.inputs_of_request(content)
            except ValueError as error:
                raise _Refused(400, str(error)) from None
            rows = await self._rows(inputs)
            failed = [row.get("error", "returned None") for row in rows if OVERALL not in row]
            if failed:
                raise _Refused(500, f"{len(failed)} of {len(rows)} failed: {failed[0]}")
            return JSONResponse(openrlhf.answer_of(rows))
        except _Refused as refused:
            return JSONResponse({"error": printable(str(refused))}, status_code=refused.status)

    async def _body(self, request: Request) -> bytes:
        if self._token is not None:
            given = request.headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
                raise _Refused(401, "the token is missing or wrong; set AGENTRL_REWARD_TOKEN")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_BYTES:
                raise _Refused(
                    413, f"more than {_MAX_BYTES >> 20} MiB; send fewer episodes at once"
                )
        return bytes(body)

    async def _rows(self, inputs: list[RewardInputs]) -> list[Mapping[str, Any]]:
        answers = [asyncio.wrap_future(one) for one in self._pool.submit_all(inputs)]
        rows: list[Mapping[str, Any]] = []
        for answer in await asyncio.gather(*answers, return_exceptions=True):
            if isinstance(answer, RewardError):
                rows.append({"error": printable(str(answer))})
            elif isinstance(answer, AgentRLError):
                raise _Refused(500, f"{type(answer).__name__}: {answer}") from answer
            elif isinstance(answer, BaseException):
                raise answer
            else:  # a lone surrogate, which JSON can contain, cannot be sent
                (row,) = answer
                assert isinstance(row, dict)
                rows.append({printable(name): value for name, value in row.items()})
        return rows


def _inputs(body: bytes) -> list[RewardInputs]:
    """The episodes of a request, with images as arrays.

    Raises:
        _Refused: it is not a valid request.
    """
    inputs = _parsed(body).get("inputs")
    if not isinstance(inputs, list) or not all(isinstance(episode, dict) for episode in inputs):
        raise _Refused(400, 'must be {"inputs": [{...}, ...]}')
    for episode in inputs:
        for name in ("images", "screens"):
            images = episode.get(name)
            if not isinstance(images, list | None):
                raise _Refused(400, f"{name} must be a list of data URIs")
            if images or name == "images":
                episode[name] = [_image(image) for image in images or ()]
    return inputs


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _Refused(400, f"invalid JSON: {describe_error(error)}") from None
    return content if isinstance(content, dict) else {}


def _image(image: Any) -> Any:
    if not image_loading.is_data_uri(image):
        raise _Refused(400, "an image must be a data URI")  # and never a path on this machine
    try:
        return image_loading.load_image(image, Path())
    except image_loading.ImageError as error:
        raise _Refused(400, str(error)) from None


def serve(
    config: RewardConfig,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    deadline_s: float = 60.0,
    token: str | None = None,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve a reward function until the process is stopped.

    Args:
        config: the function and its kwargs.
        host: the address to listen on.
        port: 0 takes a free one.
        deadline_s: for one call of the function, whose process is ended after it.
        token: token that requests must send.
        ready: called with the URL once the server listens.

    Raises:
        ConfigError: it is not a batch function, or the host is not loopback and has no token.
    """
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"host={host}: reachable from other machines; set AGENTRL_REWARD_TOKEN here and on the "
            "client, or listen on 127.0.0.1"
        )
    spec = RewardSpec(function=config.function, kwargs=config.kwargs, kind=config.kind)
    with closing(RewardPool([spec], deadline_s, "--deadline-s", CHATML)) as pool:
        if not pool.infos[0].is_batch:
            raise ConfigError(
                f"{config.function} takes an episode, which cannot be sent; a function that can be "
                "served takes reward_inputs, reward_input, data_source, data_sources, completions "
                "or queries first; for another name of a list of inputs, pass --batch"
            )
        application = RewardServer(config.function, pool, token).application()
        settings = uvicorn.Config(
            application, host=host, port=port, log_level="warning", access_log=False
        )
        _AnnouncingServer(settings, ready).run()


class _AnnouncingServer(uvicorn.Server):
    """Reports its URL once it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: Any = None) -> None:
        """See uvicorn."""
        await super().startup(sockets)
        if self.started:
            host, port, *_ = self.servers[0].sockets[0].getsockname()
            self._ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
