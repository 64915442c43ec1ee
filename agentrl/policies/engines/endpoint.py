"""Client of a chat completions server."""

import asyncio
import json
import logging
import os
import random
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from agentrl import extras
from agentrl.config import EndpointConfig
from agentrl.errors import (
    ConfigError,
    EndpointRefused,
    EndpointUnreachable,
    EngineError,
)
from agentrl.policies.engines import chat_completions
from agentrl.policies.engines.engine import Completion, Sampling
from agentrl.policies.engines.http_connection import HttpConnection
from agentrl.text import did_you_mean, quoted
from agentrl.web_access import is_loopback

log = logging.getLogger(__name__)

LARGEST = 8 << 20
"""Maximum bytes of a response: enough for 100,000 token ids and 30,000 log-probabilities."""
_TRIES = 5
_RETRYABLE = (408, 425, 429, 500, 502, 503, 504)
"""HTTP statuses that are worth a retry."""
_BACKOFF_S, _MAX_BACKOFF_S = 0.5, 30.0
_CANNOT_LIST_MODELS = (404, 405, 501)
"""HTTP statuses of a server that does not list its models."""
_UNKNOWN_FIELD = (400, 422)
_NAMES = 20


class Endpoint:
    """Sends requests to a server, with retries and deadlines.

    Args:
        settings: endpoint settings.
        deadline_s: for one reply.
        start_deadline_s: for the list of models and a first reply.
        in_flight: maximum number of concurrent requests.

    Raises:
        ConfigError: the HTTP client is not installed, or the named API key is not set.
    """

    def __init__(
        self,
        settings: EndpointConfig,
        *,
        deadline_s: float = 600.0,
        start_deadline_s: float = 600.0,
        in_flight: int = 32,
    ) -> None:
        self.model = settings.model or ""
        """The model's name on the server; known after `start`."""
        self._settings = settings
        self._url = settings.url.rstrip("/")
        self._deadline_s, self._start_deadline_s = deadline_s, start_deadline_s
        self._key = read_api_key(settings)
        self._with_tokens, self._has_warned, self._has_warned_of_top = True, False, False
        authorization = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._http = HttpConnection(
            self._url,
            in_flight,
            largest=LARGEST,
            advice=extras.NO_REMOTE,
            headers={**settings.headers, **authorization},
            uses_proxy=not is_loopback(urlsplit(self._url).hostname or ""),
        )

    async def start(self) -> None:
        """Find the model, and request a first reply of at most one token.

        Raises:
            ConfigError: the server cannot be reached, refuses the key, lacks the model, or rejects
                the request.
            EngineError: it fails.
        """
        at = f"rollout.endpoint.url={self._settings.url}"
        try:
            async with asyncio.timeout(self._start_deadline_s):
                names = await self._models()
                self.model = self._settings.model or _single_model(names, at)
                await self._probe(names)
        except TimeoutError:
            raise ConfigError(
                f"{at}: no answer within {self._start_deadline_s:g} s (rollout.start_deadline_s)"
            ) from None
        except EngineError as error:
            if isinstance(error, EndpointRefused) and error.status in _RETRYABLE:
                raise  # the server exists, but is busy or broken
            raise ConfigError(f"{at}: {error}{self._advice(error)}") from None

    def _advice(self, error: EngineError) -> str:
        """Suggest a fix for a server that does not work."""
        if isinstance(error, EndpointUnreachable):
            return ". Start it (vllm serve MODEL), or correct the URL"
        if not isinstance(error, EndpointRefused) or error.status not in (401, 403):
            return ""
        if self._key:
            return f". It refuses the key in {self._settings.api_key_env}"
        return (
            ". It requires an API key: set rollout.endpoint.api_key_env to the environment "
            "variable that holds it"
        )

    async def _models(self) -> list[str]:
        """The server's models; empty if it does not list them."""
        try:
            return chat_completions.parse_models(
                await self._request("GET", "/models", None, retry=False)
            )
        except EndpointRefused as error:
            if error.status in _CANNOT_LIST_MODELS:
                return []
            raise

    async def _probe(self, names: Sequence[str]) -> None:
        """Find out whether the server accepts our requests and reports exact tokens."""
        hello = [{"role": "user", "content": "Hello"}]
        for self._with_tokens in (True, False):
            body = chat_completions.build_request(
                self.model,
                hello,
                Sampling(max_new_tokens=1),
                self._settings.extra_body,
                self._with_tokens,
            )
            try:
                answer = await self._request("POST", "/chat/completions", body)
            except EndpointRefused as error:
                if error.status == 404 or (names and self.model not in names):
                    raise _unknown_model(self.model, names, error) from None
                if error.status not in _UNKNOWN_FIELD or not self._with_tokens:
                    raise
                continue
            # Otherwise it would compute log-probabilities in vain.
            self._with_tokens = self._with_tokens and _reports_tokens(answer)
            return

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], sampling: Sampling
    ) -> Completion | None:
        """Request one reply; None if the messages exceed the model's context.

        Args:
            messages: in the API's format.
            sampling: parameters of the reply.

        Raises:
            EngineError: the server failed, did not answer in time, refused, or sent no reply.
        """
        if sampling.top_logprobs and not (self._with_tokens or self._has_warned_of_top):
            self._has_warned_of_top = True
            log.warning("%s reports no tokens: rollout.top_logprobs has no effect", self._url)
        body = chat_completions.build_request(
            self.model, messages, sampling, self._settings.extra_body, self._with_tokens
        )
        try:
            async with asyncio.timeout(self._deadline_s):
                answer = await self._request("POST", "/chat/completions", body)
        except TimeoutError:
            raise EngineError(f"{self._url}: no answer within {self._deadline_s:g} s") from None
        except EndpointRefused as error:
            if error.status in (400, 413, 422) and chat_completions.is_context_overflow(
                error.server_message
            ):
                return None
            raise
        try:
            return chat_completions.parse_completion(answer, sampling.stop_texts)
        except EngineError as error:
            raise EngineError(f"{self._url}: {error}") from None

    async def _request(self, method: str, path: str, body: bytes | None, retry: bool = True) -> Any:
        """Send a request, with retries, and return the JSON of the response.

        Args:
            method: HTTP method.
            path: relative to the URL.
            body: body of the request.
            retry: whether to retry a server that cannot be reached.

        Raises:
            EngineError: no valid response came.
        """
        for number in range(_TRIES):
            last = number == _TRIES - 1
            try:
                status, content, wait_s = await self._send(method, path, body)
            except EndpointUnreachable as error:
                if last or not retry:
                    raise
                failure, wait_s = str(error), 0.0
            else:
                if status == 200:
                    return self._json(content)
                refusal = self._refusal(path, status, content)
                if last or status not in _RETRYABLE:
                    raise refusal
                failure = str(refusal)
            if not self._has_warned:
                self._has_warned = True
                log.warning("%s; retrying (further retries are not logged)", failure)
            # Jitter: concurrent requests were refused at the same time.
            backoff_s = _BACKOFF_S * 2**number * random.uniform(1, 1.5)
            await asyncio.sleep(min(_MAX_BACKOFF_S, max(backoff_s, wait_s)))
        raise AssertionError("the last try returns or raises")

    async def _send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes, float]:
        """Send a request once; see `HttpConnection.send`."""
        try:
            return await self._http.send(method, path, body)
        except EndpointUnreachable as error:
            raise EndpointUnreachable(self._without_key(str(error))) from None

    def _json(self, content: bytes) -> Any:
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            head = self._without_key(content[:4096].decode("utf-8", "replace"))
            raise EngineError(f"{self._url}: invalid JSON: {quoted(head, 80)}") from None

    def _refusal(self, path: str, status: int, content: bytes) -> EndpointRefused:
        server_message = self._without_key(chat_completions.error_text(content[:4096]))
        message = f"{self._url}{path} answers {status}: {quoted(server_message, 300)}"
        return EndpointRefused(message, status, server_message)

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "(the key)") if self._key else text

    async def close(self) -> None:
        """Close all connections; may be called twice."""
        await self._http.close()


def read_api_key(settings: EndpointConfig) -> str:
    """The API key from the configured environment variable; empty if none is configured.

    Raises:
        ConfigError: the variable is not set, or its value cannot be sent in a header.
    """
    name = settings.api_key_env
    if name is None:
        return ""
    key = os.environ.get(name, "").strip()
    if not key or not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"rollout.endpoint.api_key_env={name}: this environment variable "
            + ("contains characters that no HTTP header can hold" if key else "is not set")
        )
    return key


def _single_model(names: Sequence[str], at: str) -> str:
    """The only model of a server.

    Raises:
        ConfigError: there are none, or several.
    """
    if len(names) == 1:
        return names[0]
    available = (
        f"{len(names)} models: {_join_names(names)}"
        if names
        else "no list of models (most URLs end with /v1)"
    )
    raise ConfigError(f"{at}: has {available}; set rollout.endpoint.model")


def _unknown_model(model: str, names: Sequence[str], error: EndpointRefused) -> ConfigError:
    available = f"{did_you_mean(model, names)}. It has: {_join_names(names)}" if names else ""
    return ConfigError(f"rollout.endpoint.model={model!r}: {error}{available}")


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(quoted(name, 100) for name in names[:_NAMES]) + more


def _reports_tokens(answer: Any) -> bool:
    try:
        return bool(answer["choices"][0]["token_ids"] and answer["prompt_token_ids"])
    except (IndexError, KeyError, TypeError):
        return False
