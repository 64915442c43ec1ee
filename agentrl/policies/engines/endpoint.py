"""A server of chat completions, asked over HTTP; the only file that knows an HTTP client.

httpx2 and not OpenAI's own client, which is built on it: two requests are all that is needed, that
one reads an answer of any length into memory, and brings 30 MB and 0.7 s of import.
"""

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
    boundary,
)
from agentrl.policies.engines import chat_completions
from agentrl.policies.engines.chat_completions import Completion
from agentrl.policies.engines.engine import Sampling
from agentrl.text import did_you_mean, quoted

log = logging.getLogger(__name__)

LARGEST = 8 << 20
"""Bytes of an answer: 100,000 token ids and 30,000 log-probabilities have room in it."""
_TRIES = 5
_AGAIN = (408, 425, 429, 500, 502, 503, 504)
"""What a server says that may answer later."""
_AGAIN_S, _LONGEST_S = 0.5, 30.0
_NOT_ASKED = (404, 405, 501)
"""What a server says that lists no models."""
_UNKNOWN_FIELD = (400, 422)
_CONNECT_S = 30.0
_NAMES = 20


class Endpoint:
    """Asks a server, as often as it is worth it, for no longer than it may take.

    Args:
        settings: where it is.
        deadline_s: for one answer.
        start_deadline_s: for the server's models and a first answer.
        in_flight: requests at the same time, at most.

    Raises:
        ConfigError: the HTTP client is not installed, or there is no key where one is named.
    """

    def __init__(
        self,
        settings: EndpointConfig,
        *,
        deadline_s: float = 600.0,
        start_deadline_s: float = 600.0,
        in_flight: int = 32,
    ) -> None:
        try:
            import httpx2
        except ImportError:
            raise ConfigError(extras.NO_REMOTE) from None
        self.model = settings.model or ""
        """As the server calls it, once it was asked."""
        self._settings = settings
        self._url = settings.url.rstrip("/")
        self._deadline_s, self._start_deadline_s = deadline_s, start_deadline_s
        self._key = key_of(settings)
        self._exact, self._complained = True, False
        # Deadlines are asyncio's: they hold for a whole answer, however slowly it drips in.
        self._http = httpx2.AsyncClient(
            headers={**settings.headers, **self._headers()},
            timeout=httpx2.Timeout(None, connect=_CONNECT_S),
            limits=httpx2.Limits(max_connections=in_flight),
            trust_env=not _is_here(self._url),  # no proxy is asked for this very machine
        )

    def _headers(self) -> dict[str, str]:
        # What is packed can become a thousand times as long: only what is plain has a bound.
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        return headers | ({"Authorization": f"Bearer {self._key}"} if self._key else {})

    async def start(self) -> None:
        """Find the model, and let it answer once, with one token at most.

        Raises:
            ConfigError: the server cannot be reached, refuses the key, does not have the model, or
                does not take what is asked of it.
            EngineError: it fails.
        """
        at = f"rollout.endpoint.url={self._settings.url}"
        try:
            async with asyncio.timeout(self._start_deadline_s):
                names = await self._models()
                self.model = self._settings.model or _only(names, at)
                await self._first_answer(names)
        except TimeoutError:
            raise ConfigError(
                f"{at}: no answer within {self._start_deadline_s:g} s (rollout.start_deadline_s)"
            ) from None
        except EngineError as error:
            if isinstance(error, EndpointRefused) and error.status in _AGAIN:
                raise  # it is there, and busy or broken
            raise ConfigError(f"{at}: {error}{self._advice(error)}") from None

    def _advice(self, error: EngineError) -> str:
        """What to do about a server that could not be started with."""
        if isinstance(error, EndpointUnreachable):
            return ". Start it (vllm serve MODEL), or name where it is"
        if not isinstance(error, EndpointRefused) or error.status not in (401, 403):
            return ""
        if self._key:
            return f". It refuses the key of {self._settings.api_key_env}"
        return ". It wants a key: name the variable that holds it in rollout.endpoint.api_key_env"

    async def _models(self) -> list[str]:
        """What the server says it has; nothing where it does not say."""
        try:
            return chat_completions.parse_models(
                await self._ask("GET", "/models", None, patient=False)
            )
        except EndpointRefused as error:
            if error.status in _NOT_ASKED:
                return []
            raise

    async def _first_answer(self, names: Sequence[str]) -> None:
        """Find out whether the server takes our requests, and tells exact tokens."""
        hello = [{"role": "user", "content": "Hello"}]
        for self._exact in (True, False):
            body = chat_completions.build_request(
                self.model,
                hello,
                Sampling(max_new_tokens=1),
                self._settings.extra_body,
                self._exact,
            )
            try:
                answer = await self._ask("POST", "/chat/completions", body)
            except EndpointRefused as error:
                if error.status == 404 or (names and self.model not in names):
                    raise _unknown(self.model, names, error) from None
                if error.status not in _UNKNOWN_FIELD or not self._exact:
                    raise
                continue
            # Where it does not, it would compute log-probabilities for nothing.
            self._exact = self._exact and _tells_tokens(answer)
            return

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], sampling: Sampling
    ) -> Completion | None:
        """One reply; None where the messages are longer than the model reads.

        Args:
            messages: in the API's own form.
            sampling: how it is drawn.

        Raises:
            EngineError: the server failed, was silent, refused, or gave no reply.
        """
        body = chat_completions.build_request(
            self.model, messages, sampling, self._settings.extra_body, self._exact
        )
        try:
            async with asyncio.timeout(self._deadline_s):
                answer = await self._ask("POST", "/chat/completions", body)
        except TimeoutError:
            raise EngineError(f"{self._url}: no answer within {self._deadline_s:g} s") from None
        except EndpointRefused as error:
            if error.status in (400, 413, 422) and chat_completions.is_context_overflow(error.said):
                return None
            raise
        try:
            return chat_completions.parse_completion(answer)
        except EngineError as error:
            raise EngineError(f"{self._url}: {error}") from None

    async def _ask(self, method: str, path: str, body: bytes | None, patient: bool = True) -> Any:
        """The answer's JSON; asked again where it may come later.

        Args:
            method: of HTTP.
            path: behind the URL.
            body: of the request.
            patient: whether a server that cannot be reached may still come.

        Raises:
            EngineError: there is none.
        """
        for number in range(_TRIES):
            last = number == _TRIES - 1
            try:
                status, content, again_s = await self._once(method, path, body)
            except EndpointUnreachable as error:
                if last or not patient:
                    raise
                failure, again_s = str(error), 0.0
            else:
                if status == 200:
                    return self._json(content)
                refusal = self._refusal(path, status, content)
                if last or status not in _AGAIN:
                    raise refusal
                failure = str(refusal)
            if not self._complained:
                self._complained = True
                log.warning("%s; it is asked again, as often as this happens", failure)
            # Each waits a little differently: all were refused at the same time.
            own_s = _AGAIN_S * 2**number * random.uniform(1, 1.5)
            await asyncio.sleep(min(_LONGEST_S, max(own_s, again_s)))
        raise AssertionError("the last try returns or raises")

    async def _once(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes, float]:
        """Status and content of an answer, and how long the server asks to be left alone."""
        import httpx2

        what = f"{self._url}{path}"
        content = bytearray()
        try:
            with boundary(EngineError, what):
                async with self._http.stream(method, what, content=body) as response:
                    packed = response.headers.get("content-encoding", "identity")
                    if packed != "identity":
                        raise EngineError(f"{what}: the answer is packed ({quoted(packed)})")
                    async for chunk in response.aiter_raw():
                        content += chunk
                        if len(content) > LARGEST:
                            raise EngineError(f"{what}: the answer is above {LARGEST} bytes")
        except EngineError as error:
            if isinstance(error.__cause__, httpx2.TransportError):
                raise EndpointUnreachable(self._without_key(_why(what, error.__cause__))) from None
            raise
        return response.status_code, bytes(content), _seconds(response.headers.get("retry-after"))

    def _json(self, content: bytes) -> Any:
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            head = self._without_key(content[:4096].decode("utf-8", "replace"))
            raise EngineError(f"{self._url}: the answer is no JSON: {quoted(head, 80)}") from None

    def _refusal(self, path: str, status: int, content: bytes) -> EndpointRefused:
        said = self._without_key(chat_completions.error_text(content[:4096]))
        words = f"{self._url}{path} answers {status}: {quoted(said, 300)}"
        return EndpointRefused(words, status, said)

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "(the key)") if self._key else text

    async def close(self) -> None:
        """End all connections; may be called twice."""
        await self._http.aclose()


def key_of(settings: EndpointConfig) -> str:
    """The key that an environment variable holds; empty where none is named.

    Raises:
        ConfigError: it holds none, or what no header can hold.
    """
    name = settings.api_key_env
    if name is None:
        return ""
    key = os.environ.get(name, "").strip()
    if not key or not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"rollout.endpoint.api_key_env={name}: this environment variable "
            + ("holds no key that could be sent" if key else "is not set")
        )
    return key


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _only(names: Sequence[str], at: str) -> str:
    """The only one of some models.

    Raises:
        ConfigError: there is none, or there are several.
    """
    if len(names) == 1:
        return names[0]
    there = (
        f"{len(names)} models: {_listed(names)}"
        if names
        else "no list of models (most URLs end with /v1)"
    )
    raise ConfigError(f"{at}: has {there}; name one in rollout.endpoint.model")


def _unknown(model: str, names: Sequence[str], error: EndpointRefused) -> ConfigError:
    there = f"{did_you_mean(model, names)}. It has: {_listed(names)}" if names else ""
    return ConfigError(f"rollout.endpoint.model={model!r}: {error}{there}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(quoted(name, 100) for name in names[:_NAMES]) + more


def _tells_tokens(answer: Any) -> bool:
    try:
        return bool(answer["choices"][0]["token_ids"] and answer["prompt_token_ids"])
    except (IndexError, KeyError, TypeError):
        return False


def _why(what: str, error: BaseException) -> str:
    return f"{what}: {type(error).__name__}: {error}".removesuffix(": ")


def _seconds(told: str | None) -> float:
    """Of a `Retry-After`; 0 where it is a date, or none."""
    return float(told) if told is not None and told.isascii() and told.isdigit() else 0.0
