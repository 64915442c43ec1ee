"""An engine that calls a chat completions server, whose model can play but not be trained."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from agentrl import extras
from agentrl.config import EndpointConfig, RolloutConfig
from agentrl.cross_origin_requests import is_loopback
from agentrl.errors import (
    ConfigError,
    EndpointRefused,
    EndpointUnreachable,
    EngineError,
)
from agentrl.policies.engines import chat_completions_format
from agentrl.policies.engines.engine import (
    ChatEngine,
    Completion,
    EngineCapabilities,
    EngineSettings,
    Sampling,
)
from agentrl.policies.engines.http_connection import HttpConnection
from agentrl.text.formatting import quoted
from agentrl.text.name_suggestions import did_you_mean

log = logging.getLogger(__name__)

LARGEST = 8 << 20
"""Maximum bytes of a response: enough for 100,000 token ids and 30,000 log-probabilities."""
_TRIES = 5
# HTTP statuses worth retrying.
_RETRYABLE = (408, 425, 429, 500, 502, 503, 504)
_BACKOFF_S, _MAX_BACKOFF_S = 0.5, 30.0
# HTTP statuses returned by servers that do not list their models.
_CANNOT_LIST_MODELS = (404, 405, 501)
_UNKNOWN_FIELD = (400, 422)
_NAMES = 20


class RemoteEngine(ChatEngine):
    """Client of the server at `rollout.endpoint`, with retries and deadlines.

    Raises:
        ConfigError: the HTTP client is not installed, or the named API key is not set.
    """

    capabilities = EngineCapabilities(
        trains=False,
        needs_model=False,
        samples_top_p=True,
        reports_top_logprobs=True,
        packages={"httpx2": extras.NO_REMOTE},
    )

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        server = settings.endpoint
        self.model = server.model or ""
        self._url = server.url.rstrip("/")
        self._key = read_api_key(server)
        self._with_tokens, self._has_warned, self._has_warned_of_top = True, False, False
        authorization = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._http = HttpConnection(
            self._url,
            settings.concurrency,
            largest=LARGEST,
            advice=extras.NO_REMOTE,
            headers={**server.headers, **authorization},
            uses_proxy=not is_loopback(urlsplit(self._url).hostname or ""),
        )

    @classmethod
    def check(cls, rollout: RolloutConfig) -> None:
        read_api_key(rollout.endpoint)
        if rollout.engine_kwargs:
            raise ConfigError(
                f"rollout.engine_kwargs={rollout.engine_kwargs} is not used with a remote server; "
                "put additional request fields into rollout.endpoint.extra_body"
            )

    async def start(self) -> None:
        """Look up the model and request a first reply of at most one token."""
        at = f"rollout.endpoint.url={self.settings.endpoint.url}"
        try:
            async with asyncio.timeout(self.settings.start_deadline_s):
                names = await self._models()
                if not self.model:
                    if len(names) != 1:
                        listed = f"serves {len(names)} models ({_join_names(names)})"
                        none = "does not list its models (most URLs end with /v1)"
                        raise ConfigError(
                            f"{at} {listed if names else none}; set rollout.endpoint.model"
                        )
                    (self.model,) = names
                await self._probe(names)
        except TimeoutError:
            deadline_s = self.settings.start_deadline_s
            raise ConfigError(
                f"{at}: no answer within {deadline_s:g} s (rollout.start_deadline_s)"
            ) from None
        except EngineError as error:
            # The server exists but is busy or broken, so the configuration is not at fault.
            if isinstance(error, EndpointRefused) and error.status in _RETRYABLE:
                raise
            raise ConfigError(f"{at}: {error}{self._advice(error)}") from None

    def _advice(self, error: EngineError) -> str:
        """Suggest a fix for a request that failed."""
        if isinstance(error, EndpointUnreachable):
            return ". Start it (vllm serve MODEL), or correct the URL"
        if not isinstance(error, EndpointRefused) or error.status not in (401, 403):
            return ""
        if self._key:
            return f". It rejects the key in {self.settings.endpoint.api_key_env}"
        return (
            ". It requires an API key; set rollout.endpoint.api_key_env to the environment "
            "variable that contains it"
        )

    async def _models(self) -> list[str]:
        """List the server's models; empty if the server does not list them."""
        try:
            return chat_completions_format.parse_models(
                await self._request("GET", "/models", None, retry=False)
            )
        except EndpointRefused as error:
            if error.status in _CANNOT_LIST_MODELS:
                return []
            raise

    async def _probe(self, names: Sequence[str]) -> None:
        """Check that the server accepts our requests, and whether it reports exact tokens."""
        hello = [{"role": "user", "content": "Hello"}]
        for self._with_tokens in (True, False):
            body = chat_completions_format.build_request(
                self.model,
                hello,
                Sampling(max_new_tokens=1),
                self.settings.endpoint.extra_body,
                self._with_tokens,
            )
            try:
                answer = await self._request("POST", "/chat/completions", body)
            except EndpointRefused as error:
                if error.status == 404 or (names and self.model not in names):
                    near = f"{did_you_mean(self.model, names)}. It serves {_join_names(names)}"
                    raise ConfigError(
                        f"rollout.endpoint.model={self.model!r}: {error}{near if names else ''}"
                    ) from None
                if error.status not in _UNKNOWN_FIELD or not self._with_tokens:
                    raise
                continue
            # Log-probabilities are useless without token ids, so don't have the server compute
            # them.
            has_ids: Any = False
            with contextlib.suppress(IndexError, KeyError, TypeError):
                has_ids = answer["choices"][0]["token_ids"] and answer["prompt_token_ids"]
            self._with_tokens = self._with_tokens and bool(has_ids)
            return

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], sampling: Sampling
    ) -> Completion | None:
        if sampling.top_logprobs and not (self._with_tokens or self._has_warned_of_top):
            self._has_warned_of_top = True
            log.warning("%s reports no token ids; rollout.top_logprobs has no effect", self._url)
        body = chat_completions_format.build_request(
            self.model, messages, sampling, self.settings.endpoint.extra_body, self._with_tokens
        )
        try:
            async with asyncio.timeout(self.settings.deadline_s):
                answer = await self._request("POST", "/chat/completions", body)
        except TimeoutError:
            raise EngineError(
                f"{self._url}: no answer within {self.settings.deadline_s:g} s"
            ) from None
        except EndpointRefused as error:
            if error.status in (400, 413, 422) and chat_completions_format.is_context_overflow(
                error.server_message
            ):
                return None
            raise
        try:
            return chat_completions_format.parse_completion(answer, sampling.stop_texts)
        except EngineError as error:
            raise EngineError(f"{self._url}: {error}") from None

    async def _request(self, method: str, path: str, body: bytes | None, retry: bool = True) -> Any:
        """Return a response's JSON. `retry` also repeats requests that did not reach the server."""
        for number in range(_TRIES):
            last = number == _TRIES - 1
            try:
                status, content, wait_s = await self._http.send(method, path, body)
            except EndpointUnreachable as error:
                failure, wait_s = self._without_key(str(error)), 0.0
                if last or not retry:
                    raise EndpointUnreachable(failure) from None
            else:
                # Redact errors, because a server may quote our request, including the API key.
                if status == 200:
                    try:
                        return json.loads(content)
                    except (ValueError, RecursionError):
                        head = self._without_key(content[:4096].decode("utf-8", "replace"))
                        what = f"{self._url} returned invalid JSON: {quoted(head, 80)}"
                        raise EngineError(what) from None
                said = self._without_key(chat_completions_format.error_text(content[:4096]))
                failure = f"{self._url}{path} returned status {status}: {quoted(said, 300)}"
                if last or status not in _RETRYABLE:
                    raise EndpointRefused(failure, status, said)
            if not self._has_warned:
                self._has_warned = True
                log.warning("%s; retrying (further retries are not logged)", failure)
            # Add jitter, because concurrent requests tend to be refused at the same time.
            backoff_s = _BACKOFF_S * 2**number * random.uniform(1, 1.5)
            await asyncio.sleep(min(_MAX_BACKOFF_S, max(backoff_s, wait_s)))
        raise AssertionError("the last try returns or raises")

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "(the key)") if self._key else text

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        await self._http.close()


def read_api_key(settings: EndpointConfig) -> str:
    """Read the API key from the configured environment variable; empty if none is configured.

    Raises:
        ConfigError: the variable is not set, or its value cannot be sent in an HTTP header.
    """
    name = settings.api_key_env
    if name is None:
        return ""
    key = os.environ.get(name, "").strip()
    if not key or not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"rollout.endpoint.api_key_env={name}: this environment variable "
            + ("contains characters that are invalid in an HTTP header" if key else "is not set")
        )
    return key


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(quoted(name, 100) for name in names[:_NAMES]) + more
