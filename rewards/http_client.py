"""HTTP client for rewards: posts JSON to a server, with retries, within a deadline."""

import base64
import http.client
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import cv2

from agentrl.cross_origin_requests import is_loopback
from agentrl.errors import ConfigError, RewardError
from agentrl.text.formatting import retry_after_s
from agentrl.types import Image

T = TypeVar("T")

_LARGEST = 16 << 20
"""Maximum size of a response in bytes."""
_RETRY_STATUSES = (408, 425, 429, 502, 503, 504)
"""Status codes of a server that is busy or not yet up: retry the request."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
"""Pause before the first retry, and the longest pause that `Retry-After` can request."""


class HttpClient:
    """Posts JSON to one URL.

    If the server is unreachable or busy, the request is retried with exponential backoff, or after
    the time in its `Retry-After` header.

    Args:
        url: URL of the request.
        attempts: maximum number of attempts.
        hint: advice for the error message if no server is running.

    Raises:
        ConfigError: invalid URL or number of attempts.
    """

    def __init__(self, url: str, attempts: int, hint: str) -> None:
        host = _host_of(url)
        if attempts < 1:
            raise ConfigError(f"rewards: attempts={attempts} must be above 0")
        self.url, self._attempts, self._hint = url, attempts, hint
        # A proxy cannot reach this machine's own ports.
        proxies: dict[str, str] | None = {} if is_loopback(host) else None
        handlers = urllib.request.ProxyHandler(proxies), _NoRedirects()
        self._opener = urllib.request.build_opener(*handlers)

    def post(self, content: Any, end: float, key: str | None = None) -> bytes:
        """Send JSON and return the body of the response, by the time `end` of `time.monotonic`.

        The key is sent as a bearer token and never appears in error messages.

        Raises:
            RewardError: the request did not succeed in time.
        """
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.url, json.dumps(content).encode(), headers)
        why = ""
        for attempt in range(1, self._attempts + 1):
            response, wait_s = self._request(request, end, key)
            if isinstance(response, bytes):
                return response
            why = f"failed after {attempt} attempts: {response}"
            pause_s = max(_FIRST_PAUSE_S * 2 ** (attempt - 1), min(wait_s, _LONGEST_PAUSE_S))
            if attempt == self._attempts or time.monotonic() + pause_s >= end:
                break
            time.sleep(pause_s)
        raise RewardError(f"{self.url}: {why}")

    def _request(
        self, request: urllib.request.Request, end: float, key: str | None
    ) -> tuple[bytes | str, float]:
        """Try once; return the body and 0, or why the request failed and the delay before a retry.

        Raises:
            RewardError: a retry would not help.
        """
        try:
            # A socket's timeout applies to each packet, and does not cover name resolution.
            answer = start_call(lambda: self._exchange(request, end))
            status, body, wait_s = result_by(answer, end)
        except (OSError, http.client.HTTPException) as error:
            return self._reason(error), 0.0
        if status // 100 == 2:
            return body, 0.0
        message = _error_message(body)
        why = f"{status}: {message.replace(key, '(the key)') if key else message}"
        if status in _RETRY_STATUSES:
            return why, wait_s
        raise RewardError(f"{self.url}: {why}")

    def _exchange(self, request: urllib.request.Request, end: float) -> tuple[int, bytes, float]:
        try:
            answer = self._opener.open(request, timeout=max(0.01, end - time.monotonic()))
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            wait_s = retry_after_s(answer.headers.get("Retry-After"))
            return answer.status, _read_body(answer, end), wait_s

    def _reason(self, error: Exception) -> str:
        """Describe the error, with a hint if no server is running."""
        message = f"{type(error).__name__}: {error}"
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, ConnectionRefusedError):
            message += f" ({self._hint})"
        return message


def _host_of(url: str) -> str:
    """Return the host of a URL.

    Raises:
        ConfigError: the URL is not valid.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # an invalid port or address
        is_valid = False
    if not is_valid:
        raise ConfigError(f"rewards: url={url!r} must have the form http://HOST:PORT")
    return str(parts.hostname)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: episodes go only to the configured server."""

    def redirect_request(self, *arguments: Any) -> None:
        """Refuse the redirect."""
        return


def start_call(call: Callable[[], T]) -> "Future[T]":
    """Run a call in its own thread, which does not keep the process from exiting."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="reward over HTTP", daemon=True).start()
    return result


def result_by(call: "Future[T]", end: float) -> T:
    """Return the call's result or raise its exception; abandon the call after `end`.

    Raises:
        TimeoutError: the call did not finish in time.
    """
    try:
        return call.result(max(0.01, end - time.monotonic()))
    except TimeoutError:
        if call.done():
            raise
        raise TimeoutError("the response was not complete in time") from None


def _read_body(answer: Any, end: float) -> bytes:
    """Read the whole body by the time `end` of `time.monotonic`; the server may send slowly."""
    body = b""
    while chunk := answer.read1(65536):
        body += chunk
        if len(body) > _LARGEST:
            raise RewardError(f"the reward server's response exceeds {_LARGEST >> 20} MiB")
        if time.monotonic() > end:
            raise TimeoutError("the response was not complete in time")
    if missing := getattr(answer, "length", None):
        raise http.client.IncompleteRead(body, missing)
    return body


def _error_message(body: bytes) -> str:
    try:
        error = json.loads(body)["error"]
        return str(error.get("message", error) if isinstance(error, dict) else error)[:500]
    except (ValueError, TypeError, KeyError, RecursionError):
        return body[:200].decode(errors="replace")


def data_uri(image: Image) -> str:
    """Return an image as the data URI of a PNG."""
    encoded, png = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    assert encoded
    return f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"
