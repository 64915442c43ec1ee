"""Requests and responses of the chat completions API.

All functions are pure. A server's response is untrusted and validated before use.
"""

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import cv2

from agentrl.errors import EngineError
from agentrl.policies.engines.engine import (
    LARGEST_LOGPROB,
    Completion,
    Sampling,
    most_probable,
)
from agentrl.text.formatting import encodable, quoted
from agentrl.types import Image, Message, TopLogprobs

Part = dict[str, Any]
"""A message or part of a message, in the API's format."""

EXACT: Mapping[str, Any] = {"return_token_ids": True, "logprobs": True}
"""Fields that request exact tokens. The first is specific to vLLM; other servers may reject it."""
_TOKEN_ID = re.compile(r"token_id:(\d{1,9})")
# Seeds are taken modulo this number, because some servers reject larger ones.
_SEEDS = 2**31
_IDS = 2**32
# Finish reasons of a complete reply; None if the server omits it.
_ENDS = ("stop", "length", None)
_CONTEXT_OVERFLOW = re.compile(
    r"context.?length|context.?window|context size|prompt is too long", re.I
)


def build_request(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    sampling: Sampling,
    extra_body: Mapping[str, Any],
    exact: bool,
) -> bytes:
    """Build the body of a request, in ASCII."""
    body: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p if sampling.top_p < 1 else None,
        "max_tokens": sampling.max_new_tokens,
        "seed": sampling.seed % _SEEDS,
        "stop": list(sampling.stop_texts) or None,
        **(EXACT if exact else {}),
    }
    # Only vLLM can report the most probable tokens by id.
    if exact and sampling.top_logprobs:
        body |= {"top_logprobs": sampling.top_logprobs, "return_tokens_as_token_ids": True}
    body |= extra_body
    return json.dumps({k: v for k, v in body.items() if v is not None}).encode()


def encode_message(message: Message) -> Part:
    """Convert a message to the API's format: text, with a PNG in place of each `<image>`."""
    first, *texts = message.split_at_images()
    if not texts:
        return {"role": message.role, "content": first}
    parts: list[Part] = [{"type": "text", "text": first}]
    for image, text in zip(message.images, texts, strict=True):
        parts.append({"type": "image_url", "image_url": {"url": data_url(image)}})
        parts.append({"type": "text", "text": text})
    return {"role": message.role, "content": [part for part in parts if part.get("text") != ""]}


def data_url(image: Image) -> str:
    """Encode an image as the data URL of a PNG."""
    success, png = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    assert success, f"OpenCV cannot encode {image.shape} as PNG"
    return f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"


def parse_completion(answer: Any, stop_texts: Sequence[str] = ()) -> Completion:
    """Parse the reply in a server's response.

    An empty reply or a reply truncated at the maximum length is valid: the model produced it.

    Args:
        answer: the response's JSON.
        stop_texts: stop strings of the request. As with a local model, the reply includes the first
            stop string and ends there.

    Raises:
        EngineError: the response contains no reply, or the server cut the reply off.
    """
    try:
        choice = answer["choices"][0]
        text, end = choice["message"].get("content"), choice.get("finish_reason")
        ids = choice.get("token_ids")
        prompt_ids = answer.get("prompt_token_ids")
        tokens = (choice.get("logprobs") or {}).get("content")
        logprobs = None if tokens is None else [token["logprob"] for token in tokens]
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise EngineError(
            f"the server's answer is not a chat completions response ({type(error).__name__})"
        ) from None
    if end == "content_filter":
        raise EngineError("the server's content filter withheld the reply")
    if not (end is None or isinstance(end, str)) or end not in _ENDS:
        raise EngineError(f"the reply has finish_reason {quoted(end)}; expected stop or length")
    if not isinstance(text, str) or (not text and end == "length"):
        hint = (
            "; if the model reasons first, raise rollout.max_new_tokens" if end == "length" else ""
        )
        raise EngineError(f"the reply has no text{hint}")
    text = encodable(text)
    ended = _with_stop_text(text, choice, stop_texts)
    # The reported ids cover the whole text, so they no longer match.
    if len(ended) < len(text):
        ids = None
    return Completion(
        text=ended,
        finish_reason=end,
        **_tokens(prompt_ids, ids, logprobs, tokens),
        **_usage(answer),
    )


def _with_stop_text(text: str, choice: Mapping[str, Any], stop_texts: Sequence[str]) -> str:
    """Return the reply up to and including its first stop string, which most servers omit."""
    ends = [text.index(stop) + len(stop) for stop in stop_texts if stop in text]
    if ends:
        return text[: min(ends)]
    # Nonstandard fields of vLLM and SGLang.
    for name in ("stop_reason", "matched_stop"):
        if name in choice:
            stopped_at = choice[name]
            return text + stopped_at if stopped_at in stop_texts else text
    if choice.get("finish_reason") != "stop":
        return text
    # The API does not report whether a stop string or the model itself ended the reply.
    unclosed = [tag for tag in stop_texts if tag[:2] == "</" and f"<{tag[2:]}" in text]
    return text + (unclosed[0] if unclosed else "")


def _tokens(prompt_ids: Any, ids: Any, logprobs: Any, tokens: Any) -> dict[str, Any]:
    """Return the tokens if each is reported with a log-probability; otherwise {}."""
    if not (prompt_ids and ids and logprobs):
        return {}
    for numbers in (prompt_ids, ids):
        if not isinstance(numbers, list) or not all(
            type(id) is int and 0 <= id < _IDS for id in numbers
        ):
            raise EngineError("the response's token ids are invalid")
    if not all(type(p) in (int, float) and -math.inf < p <= LARGEST_LOGPROB for p in logprobs):
        raise EngineError("the response's log-probabilities are invalid")
    if len(ids) != len(logprobs):
        return {}
    floats = tuple(map(float, logprobs))
    return {
        "prompt_ids": tuple(prompt_ids), "reply_ids": tuple(ids), "logprobs": floats,
        "top_logprobs": _top_logprobs(tokens),
    }  # fmt: skip


def _top_logprobs(tokens: Sequence[Mapping[str, Any]]) -> tuple[TopLogprobs, ...]:
    """Return the most probable tokens at each position; empty unless all are given by id."""
    positions = []
    for token in tokens:
        pairs = []
        found = token.get("top_logprobs")
        for one in found if isinstance(found, list) else ():
            name = _TOKEN_ID.fullmatch(str(one.get("token"))) if isinstance(one, dict) else None
            if name is None or type(one.get("logprob")) not in (int, float):
                return ()
            pairs.append((int(name[1]), float(one["logprob"])))
        positions.append(most_probable(pairs, len(pairs)))
    return tuple(positions) if any(positions) else ()


def _usage(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token counts that the server reports."""
    usage = answer.get("usage")
    names = {"num_prompt_tokens": "prompt_tokens", "num_reply_tokens": "completion_tokens"}
    reported = usage if isinstance(usage, Mapping) else {}
    counts = {ours: reported.get(name) for ours, name in names.items()}
    return {ours: count for ours, count in counts.items() if type(count) is int}


def parse_models(answer: Any) -> list[str]:
    """Return the names in a server's list of models; empty if `answer` is not a list of models."""
    try:
        names = [model["id"] for model in answer["data"]]
    except (KeyError, TypeError):
        return []
    return [name for name in names if isinstance(name, str)]


def error_text(content: bytes) -> str:
    """Extract the error message from a server's response."""
    text = content.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for name in ("error", "message", "detail"):
        found = found.get(name, found) if isinstance(found, dict) else found
    return found if isinstance(found, str) else text


def is_context_overflow(message: str) -> bool:
    """Return whether an error says that a prompt exceeds the model's context."""
    return _CONTEXT_OVERFLOW.search(message) is not None
