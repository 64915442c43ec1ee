"""Rewards computed by a server over HTTP: `agentrl serve-reward`, or one of OpenRLHF."""

import base64
import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeVar

import cv2
import numpy as np

from agentrl.data import openrlhf
from agentrl.errors import ConfigError, RewardError
from agentrl.text import did_you_mean, is_loopback
from agentrl.types import Image

T = TypeVar("T")

_LARGEST = 16 << 20
"""Maximum size of a response in bytes."""
_RETRY_STATUSES = (408, 425, 429, 502, 503, 504)
"""Status codes of a server that is busy or not up yet; the request is retried."""
_FIRST_PAUSE_S = 0.2


class Remote:
    """Requests the rewards of episodes from a server; a batch function.

    If the server cannot be reached or is busy, the request is retried with exponential backoff.
    Keep `deadline_s` below `rollout.reward_deadline_s`.

    Args:
        url: the server's URL, such as `http://127.0.0.1:8765`.
        deadline_s: deadline for all attempts of a call together.
        attempts: maximum number of attempts.
        images: whether to send images, as PNG.

    Raises:
        ConfigError: invalid URL, deadline or number of attempts.
    """

    def __init__(
        self, url: str, deadline_s: float = 30.0, attempts: int = 5, images: bool = False
    ) -> None:
        parts = urllib.parse.urlsplit(str(url))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"rewards: url={url!r} must have the form http://HOST:PORT")
        if deadline_s <= 0 or attempts < 1:
            raise ConfigError(
                f"rewards: deadline_s={deadline_s} and attempts={attempts} must be above 0"
            )
        self._url = self._address(str(url))
        self._deadline_s, self._attempts, self._images = deadline_s, attempts, images
        # A proxy cannot reach this machine's own ports.
        proxies: dict[str, str] | None = {} if is_loopback(parts.hostname) else None
        handlers = urllib.request.ProxyHandler(proxies), _NoRedirects()
        self._opener = urllib.request.build_opener(*handlers)

    def __call__(self, reward_inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """One row per episode.

        Raises:
            RewardError: the server returned no valid rows in time.
        """
        body = json.dumps(self._content(reward_inputs)).encode()
        end, why = time.monotonic() + self._deadline_s, ""
        for attempt in range(1, self._attempts + 1):
            response = self._request(body, end)
            if isinstance(response, bytes):
                return self._rows(response, len(reward_inputs))
            why = f"failed after {attempt} attempts: {response}"
            pause_s = _FIRST_PAUSE_S * 2 ** (attempt - 1)
            if attempt == self._attempts or time.monotonic() + pause_s >= end:
                break
            time.sleep(pause_s)
        raise RewardError(f"{self._url}: {why}")

    def _address(self, url: str) -> str:
        return f"{url.rstrip('/')}/score"

    def _content(self, reward_inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {"inputs": [self._payload(inputs) for inputs in reward_inputs]}

    def _payload(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        texts = {name: value for name, value in inputs.items() if not _holds_images(value)}
        held = {"images": inputs.get("images", ()), "screens": inputs.get("screens", ())}
        if len(held["images"]) == len(held["screens"]):  # they are the same
            del held["screens"]
        sent = held if self._images else {"images": ()}
        return texts | {name: [*map(_data_uri, images)] for name, images in sent.items()}

    def _request(self, body: bytes, end: float) -> bytes | str:
        """One attempt: the response body, or the reason why a retry may help.

        Raises:
            RewardError: a retry would not help.
        """
        headers = {"Content-Type": "application/json"}
        if token := os.environ.get("AGENTRL_REWARD_TOKEN"):
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(self._url, body, headers)
        try:
            status, answer = _call_with_deadline(end, lambda: self._exchange(request, end))
        except (OSError, http.client.HTTPException) as error:
            return _reason(error)
        if status // 100 == 2:
            return answer
        why = f"{status}: {_error_message(answer)}"
        if status in _RETRY_STATUSES:
            return why
        raise RewardError(f"{self._url}: {why}")

    def _exchange(self, request: urllib.request.Request, end: float) -> tuple[int, bytes]:
        try:
            answer = self._opener.open(request, timeout=max(0.01, end - time.monotonic()))
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, _read_body(answer, end)

    def _rows(self, answer: bytes, count: int) -> list[dict[str, Any]]:
        try:
            rows = json.loads(answer)["rows"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise RewardError(f"{self._url}: no rows in {answer[:80]!r}") from None
        if not isinstance(rows, list) or len(rows) != count:
            received = len(rows) if isinstance(rows, list) else type(rows).__name__
            raise RewardError(f"{self._url}: {received} rows for {count} episodes")
        return rows


class OpenRLHF(Remote):
    """Requests rewards as OpenRLHF and LMM-R1 do with `--remote_rm_url`; a batch function.

    Args:
        url: the whole URL, such as `http://127.0.0.1:5000/get_reward`.
        prompt_key: the column of the data set sent as `prompts`, such as `message` for LMM-R1's
            verifiers, which look up the answer by it; None sends the prompt's text, as the
            model's chat template writes it.
        deadline_s: deadline for all attempts of a call together.
        attempts: maximum number of attempts.

    Raises:
        ConfigError: as `Remote`.
    """

    def __init__(
        self,
        url: str,
        prompt_key: str | None = None,
        deadline_s: float = 30.0,
        attempts: int = 5,
    ) -> None:
        super().__init__(url, deadline_s, attempts)
        self._prompt_key = prompt_key

    def _address(self, url: str) -> str:
        return url

    def _content(self, reward_inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        key = self._prompt_key
        for inputs in reward_inputs:
            if key is not None and key not in inputs:
                raise ConfigError(
                    f"rewards: prompt_key={key}: no column has this name"
                    f"{did_you_mean(key, inputs)}. There are: {', '.join(inputs)}"
                )
        return openrlhf.request_of(reward_inputs, key)

    def _rows(self, answer: bytes, count: int) -> list[dict[str, Any]]:
        try:
            return openrlhf.rows_of(json.loads(answer), count)
        except (ValueError, RecursionError) as error:
            raise RewardError(f"{self._url}: {error}: {answer[:80]!r}") from None


def _holds_images(value: Any) -> bool:
    """Whether a value is an image or a list of images."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, np.ndarray)


def _reason(error: Exception) -> str:
    """The error, with a hint if no server is running."""
    message = f"{type(error).__name__}: {error}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, ConnectionRefusedError):
        message += " (agentrl serve-reward starts a server)"
    return message


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: episodes go only to the configured server."""

    def redirect_request(self, *arguments: Any) -> None:
        """Refuse."""
        return


def _call_with_deadline(end: float, call: Callable[[], T]) -> T:
    """Return or raise what `call` does; a call past the deadline is abandoned in its thread.

    Raises:
        TimeoutError: the call did not end in time.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    # A socket's timeout applies to each packet, and does not cover name resolution.
    threading.Thread(target=run, name="remote reward", daemon=True).start()
    wait([result], max(0.01, end - time.monotonic()))
    if not result.done():
        raise TimeoutError("the response was not complete in time")
    return result.result()


def _read_body(answer: Any, end: float) -> bytes:
    """The whole response body, with a deadline also for a server that sends slowly.

    Args:
        answer: an HTTP response.
        end: deadline on the clock of `time.monotonic`.

    Raises:
        RewardError: the body is too large.
        TimeoutError: the body was not complete in time.
    """
    body = b""
    while chunk := answer.read1(65536):
        body += chunk
        if len(body) > _LARGEST:
            raise RewardError(f"the reward server's response exceeds {_LARGEST >> 20} MiB")
        if time.monotonic() > end:
            raise TimeoutError("the response was not complete in time")
    return body


def _error_message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])[:500]
    except (ValueError, TypeError, KeyError, RecursionError):
        return body[:200].decode(errors="replace")


def _data_uri(image: Image) -> str:
    encoded, png = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    assert encoded
    return f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"
