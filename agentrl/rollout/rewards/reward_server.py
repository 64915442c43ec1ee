"""Serve a reward function over HTTP, for `agentrl.rewards.remote:Remote` and for OpenRLHF.

::

    POST /score       {"inputs": [{...}, ...]}   ->   {"rows": [{"overall": 1.0, ...}, ...]}
    POST /get_reward  {"query": [...], "prompts": [...], "labels": [...]}
                                                 ->   {"rewards": [...], ...}
    GET  /health                                 ->   {"function": "..."}

If an episode cannot be scored, its row is `{"error": "why"}`, or `{}` if the function does not
apply to it. `/get_reward` is for OpenRLHF's `--remote_rm_url`, which does not support these rows:
it answers 500 instead.
"""

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from agentrl.config import RewardConfig
from agentrl.cross_origin_requests import MAX_CONNECTIONS, foreign_request, is_loopback
from agentrl.data import image_loading, openrlhf_reward_protocol
from agentrl.data.reward_inputs import CHATML
from agentrl.errors import AgentRLError, ConfigError, RewardError, describe_error
from agentrl.rollout.rewards.reward_calls import OVERALL, SENT_IMAGES, RewardInputs, RewardSpec
from agentrl.rollout.rewards.reward_pool import RewardPool
from agentrl.text.formatting import printable

log = logging.getLogger(__name__)

_MAX_BYTES = 256 << 20
"""Maximum bytes of a request: about 64 episodes with their images."""
_MAX_IMAGES = 2048
"""Maximum number of images of a request."""
_MAX_PIXELS = 512_000_000
"""Maximum number of pixels of a request, and of all requests being scored at a time: 1.5 GB, or
about 200 phone screens."""


class _Refused(Exception):
    """Raised to answer a request with an error."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class RewardServer:
    """Serves one batch function; if there is a token, requests must send it."""

    def __init__(self, name: str, pool: RewardPool, host: str, token: str | None = None) -> None:
        self._name, self._pool, self._host, self._token = name, pool, host, token
        self._free_pixels, self._scored = _MAX_PIXELS, asyncio.Condition()

    def application(self) -> FastAPI:
        """The ASGI application."""
        app = FastAPI(title="agentrl reward server", docs_url=None, redoc_url=None)
        app.middleware("http")(self._guard)
        app.add_api_route("/score", self._score, methods=["POST"])
        app.add_api_route("/get_reward", self._get_reward, methods=["POST"])
        app.add_api_route("/health", self._health, methods=["GET"])
        return app

    async def _guard(
        self, request: Request, answer: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        # A web page opened by the user must not use a server on this machine.
        if (why := foreign_request(request.headers, self._host)) is not None:
            return JSONResponse({"error": why}, status_code=403)
        return await answer(request)

    async def _health(self) -> JSONResponse:
        return JSONResponse({"function": self._name})

    async def _score(self, request: Request) -> JSONResponse:
        try:
            # Score in a thread, so that other requests can be answered in the meantime.
            inputs, pixels = await asyncio.to_thread(_inputs, await self._body(request))
            async with self._room(pixels):
                return JSONResponse({"rows": await self._rows(inputs)})
        except _Refused as refused:
            return JSONResponse({"error": printable(str(refused))}, status_code=refused.status)

    async def _get_reward(self, request: Request) -> JSONResponse:
        try:
            body = await self._body(request)
            try:
                inputs = await asyncio.to_thread(
                    lambda: openrlhf_reward_protocol.inputs_of_request(_parsed(body))
                )
            except ValueError as error:
                raise _Refused(400, str(error)) from None
            rows = await self._rows(inputs)
            # OpenRLHF requires a reward for every row, so it would train on a made-up reward.
            failed = [row.get("error", "returned None") for row in rows if OVERALL not in row]
            if failed:
                raise _Refused(500, f"{len(failed)} of {len(rows)} failed: {failed[0]}")
            return JSONResponse(openrlhf_reward_protocol.answer_of(rows))
        except _Refused as refused:
            return JSONResponse({"error": printable(str(refused))}, status_code=refused.status)

    async def _body(self, request: Request) -> bytes:
        if self._token is not None:
            given = request.headers.get("authorization", "")
            # An ordinary comparison would leak the token character by character through its timing.
            if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
                raise _Refused(401, "the token is missing or wrong; set AGENTRL_REWARD_TOKEN")
        # Count the bytes as they arrive, because the length in the headers cannot be trusted.
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_BYTES:
                raise _Refused(
                    413,
                    f"the request exceeds {_MAX_BYTES >> 20} MiB; send fewer episodes at once",
                )
        return bytes(body)

    @asynccontextmanager
    async def _room(self, pixels: int) -> AsyncIterator[None]:
        """Wait until there is memory for a request's images."""
        async with self._scored:
            await self._scored.wait_for(lambda: pixels <= self._free_pixels)
            self._free_pixels -= pixels
        try:
            yield
        finally:
            async with self._scored:
                self._free_pixels += pixels
                self._scored.notify_all()

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


def _inputs(body: bytes) -> tuple[list[RewardInputs], int]:
    """Return a request's episodes, with images as data URIs, and their total number of pixels."""
    inputs = _parsed(body).get("inputs")
    if not isinstance(inputs, list) or not all(isinstance(episode, dict) for episode in inputs):
        raise _Refused(400, 'the request must be {"inputs": [{...}, ...]}')
    images: list[Any] = []
    for episode in inputs:
        for name in SENT_IMAGES:
            listed = episode.get(name)
            if not isinstance(listed, list | None):
                raise _Refused(400, f"{name} must be a list of data URIs")
            images += listed or ()
        episode["images"] = episode.get("images") or []
    return inputs, _pixels(images)


def _pixels(images: Sequence[Any]) -> int:
    """Return the total number of pixels in a request's images."""
    if len(images) > _MAX_IMAGES:
        raise _Refused(413, f"the request has {len(images)} images; the maximum is {_MAX_IMAGES}")
    try:
        pixels = sum(map(image_loading.count_pixels, images))
    except image_loading.ImageError as error:
        raise _Refused(400, str(error)) from None
    if pixels > _MAX_PIXELS:
        raise _Refused(
            413, f"the images have {pixels:,} pixels; the maximum is {_MAX_PIXELS:,}. Send fewer "
            "episodes at once (max_batch_size), or smaller images",
        )  # fmt: skip
    return pixels


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _Refused(400, f"invalid JSON: {describe_error(error)}") from None
    return content if isinstance(content, dict) else {}


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
        port: port to listen on; 0 picks a free port.
        deadline_s: deadline for a call of the function, after which its process is killed.
        token: token that requests must send.
        ready: called with the URL once the server listens.

    Raises:
        ConfigError: the function is not a batch function, or the host is not loopback and there
            is no token.
    """
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"host={host} is reachable from other machines; set AGENTRL_REWARD_TOKEN here and on "
            "the client, or listen on 127.0.0.1"
        )
    spec = RewardSpec(function=config.function, kwargs=config.kwargs, kind=config.kind)
    with closing(RewardPool([spec], deadline_s, "--deadline-s", CHATML)) as pool:
        if not pool.infos[0].is_batch:
            raise ConfigError(
                f"{config.function} takes an episode, which cannot be sent. The first parameter of "
                "a served function must be reward_inputs, reward_input, data_source, data_sources, "
                "completions or queries; if it is a list of inputs with another name, pass --batch"
            )
        application = RewardServer(config.function, pool, host, token).application()
        settings = uvicorn.Config(
            application, host=host, port=port, log_level="warning", access_log=False,
            limit_concurrency=MAX_CONNECTIONS,
        )  # fmt: skip
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
