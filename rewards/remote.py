"""A reward that is computed elsewhere, and asked for over HTTP: see `agentrl serve-reward`."""

import base64
import http.client
import ipaddress
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

from agentrl.errors import ConfigError, RewardError
from agentrl.types import Image

T = TypeVar("T")

_LARGEST = 16 << 20
"""Bytes of an answer."""
_AGAIN = (408, 425, 429, 502, 503, 504)
"""Answers of a server that is busy or not up yet; it may be asked again."""
_FIRST_PAUSE_S = 0.2


class Remote:
    """Asks a server what some episodes are worth; a batch function.

    A server that cannot be reached or is busy is asked again, after twice as long a pause each
    time. Keep `deadline_s` below `rollout.reward_deadline_s`.

    Args:
        url: of the server, such as `http://127.0.0.1:8765`.
        deadline_s: for all attempts of a call together.
        attempts: at most.
        images: whether pictures are sent, as PNG.

    Raises:
        ConfigError: no such address can exist.
    """

    def __init__(
        self, url: str, deadline_s: float = 30.0, attempts: int = 5, images: bool = False
    ) -> None:
        parts = urllib.parse.urlsplit(str(url))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"rewards: url={url!r} must read http://HOST:PORT")
        if deadline_s <= 0 or attempts < 1:
            raise ConfigError(
                f"rewards: deadline_s={deadline_s} and attempts={attempts} must be above 0"
            )
        self._url = f"{str(url).rstrip('/')}/score"
        self._deadline_s, self._attempts, self._images = deadline_s, attempts, images
        # A proxy cannot reach this machine's own ports.
        proxies: dict[str, str] | None = {} if _is_here(parts.hostname) else None
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies), _Stay())

    def __call__(self, reward_inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """A row for each episode.

        Raises:
            RewardError: the server gave none.
        """
        body = json.dumps({"inputs": [self._sent(one) for one in reward_inputs]}).encode()
        end, why = time.monotonic() + self._deadline_s, ""
        for attempt in range(1, self._attempts + 1):
            found = self._ask(body, end)
            if isinstance(found, bytes):
                return self._rows(found, len(reward_inputs))
            why = f"asked {attempt} times: {found}"
            pause_s = _FIRST_PAUSE_S * 2 ** (attempt - 1)
            if attempt == self._attempts or time.monotonic() + pause_s >= end:
                break
            time.sleep(pause_s)
        raise RewardError(f"{self._url}: {why}")

    def _sent(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        images = inputs.get("images", ()) if self._images else ()
        return {**inputs, "images": [_data_uri(image) for image in images]}

    def _ask(self, body: bytes, end: float) -> bytes | str:
        """The answer, or why there is none yet.

        Raises:
            RewardError: asking again would not help.
        """
        headers = {"Content-Type": "application/json"}
        if token := os.environ.get("AGENTRL_REWARD_TOKEN"):
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(self._url, body, headers)
        try:
            status, answer = _within(end, lambda: self._exchange(request, end))
        except (OSError, http.client.HTTPException) as error:
            return _reason(error)
        if status // 100 == 2:
            return answer
        why = f"{status}: {_told(answer)}"
        if status in _AGAIN:
            return why
        raise RewardError(f"{self._url}: {why}")

    def _exchange(self, request: urllib.request.Request, end: float) -> tuple[int, bytes]:
        try:
            answer = self._opener.open(request, timeout=max(0.01, end - time.monotonic()))
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, _bounded(answer, end)

    def _rows(self, answer: bytes, count: int) -> list[dict[str, Any]]:
        try:
            rows = json.loads(answer)["rows"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise RewardError(f"{self._url}: no rows in {answer[:80]!r}") from None
        if not isinstance(rows, list) or len(rows) != count:
            told = len(rows) if isinstance(rows, list) else type(rows).__name__
            raise RewardError(f"{self._url}: {told} rows for {count} episodes")
        return rows


def _reason(error: Exception) -> str:
    """Why nobody answered, and what to do where nobody is there."""
    words = f"{type(error).__name__}: {error}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, ConnectionRefusedError):
        words += " (agentrl serve-reward starts a server)"
    return words


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nobody elsewhere: what an episode was is for the server that was named."""

    def redirect_request(self, *arguments: Any) -> None:
        """Refuse."""
        return


def _within(end: float, call: Callable[[], T]) -> T:
    """What a call returns or raises; one that does not end is left to itself.

    Raises:
        TimeoutError: it has not ended in time.
    """
    answer: Future[T] = Future()

    def carry_out() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    # A socket's time-out is for each packet, and for no name that is looked up.
    threading.Thread(target=carry_out, name="remote reward", daemon=True).start()
    wait([answer], max(0.01, end - time.monotonic()))
    if not answer.done():
        raise TimeoutError("the answer did not end in time")
    return answer.result()


def _bounded(answer: Any, end: float) -> bytes:
    """The whole answer; a server that sends a little at a time has the same deadline.

    Args:
        answer: an HTTP response.
        end: in the seconds of `time.monotonic`.

    Raises:
        RewardError: it is too large.
        TimeoutError: it did not come in time.
    """
    body = b""
    while chunk := answer.read1(65536):
        body += chunk
        if len(body) > _LARGEST:
            raise RewardError(f"the reward server's answer has more than {_LARGEST >> 20} MiB")
        if time.monotonic() > end:
            raise TimeoutError("the answer did not end in time")
    return body


def _told(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])[:500]
    except (ValueError, TypeError, KeyError, RecursionError):
        return body[:200].decode(errors="replace")


def _data_uri(image: Image) -> str:
    held, png = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    assert held
    return f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
