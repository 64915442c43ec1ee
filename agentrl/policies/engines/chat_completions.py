"""The words of the chat completions API: what is asked of a server, and what it answers.

Pure functions; whatever a server says is foreign text, and is checked before it is believed.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.errors import EngineError
from agentrl.policies.engines.engine import Sampling
from agentrl.text import encodable, quoted

EXACT: Mapping[str, Any] = {"return_token_ids": True, "logprobs": True}
"""Fields that ask for exact tokens: the first is vLLM's own, and others may refuse it."""
_SEEDS = 2**31
"""Some servers take no larger ones."""
_IDS = 2**32
_ENDS = ("stop", "length", None)
"""How a reply ends that was given as it is; a server need not say."""
_NO_ROOM = re.compile(r"context.?length|context.?window|context size|prompt is too long", re.I)


@dataclass(slots=True, kw_only=True, frozen=True)
class Completion:
    """One reply of a server."""

    text: str
    prompt_ids: tuple[int, ...] = ()
    """[P], empty where the server did not tell tokens."""
    reply_ids: tuple[int, ...] = ()
    """[R], likewise."""
    logprobs: tuple[float, ...] = ()
    """[R], as the server tells them: vLLM's are of the model's own distribution, before
    temperature, unless it was started with `--logprobs-mode processed_logprobs`."""


def build_request(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    sampling: Sampling,
    extra_body: Mapping[str, Any],
    exact: bool,
) -> bytes:
    """The body of a request, in ASCII.

    Args:
        model: as the server calls it.
        messages: in the API's own form.
        sampling: how tokens are drawn.
        extra_body: further fields; None leaves out one of ours.
        exact: ask for token ids and log-probabilities.
    """
    body = {
        "model": model,
        "messages": messages,
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_new_tokens,
        "seed": sampling.seed % _SEEDS,
        **(EXACT if exact else {}),
        **extra_body,
    }
    return json.dumps({k: v for k, v in body.items() if v is not None}).encode()


def parse_completion(answer: Any) -> Completion:
    """The reply in a server's answer.

    A reply that was cut at its most tokens, or says nothing, is the model's own.

    Raises:
        EngineError: there is no reply in it, or one that the model did not end by itself.
    """
    try:
        choice = answer["choices"][0]
        text, end = choice["message"].get("content"), choice.get("finish_reason")
        ids = choice.get("token_ids")
        prompt_ids = answer.get("prompt_token_ids")
        told = (choice.get("logprobs") or {}).get("content")
        logprobs = None if told is None else [token["logprob"] for token in told]
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise EngineError(f"is no answer of chat completions ({type(error).__name__})") from None
    if end == "content_filter":
        raise EngineError("the server's content filter kept the reply back")
    if not (end is None or isinstance(end, str)) or end not in _ENDS:
        raise EngineError(f"the reply ended by {quoted(end)}, neither by itself nor by its length")
    if not isinstance(text, str) or (not text and end == "length"):
        thought = "; raise rollout.max_new_tokens, if it thinks unseen" if end == "length" else ""
        raise EngineError(f"the answer has no words{thought}")
    return Completion(text=encodable(text), **_tokens(prompt_ids, ids, logprobs))


def _tokens(prompt_ids: Any, ids: Any, logprobs: Any) -> dict[str, Any]:
    """Tokens where all of them are told, one log-probability for each; else none.

    Raises:
        EngineError: what is told are no tokens.
    """
    if not (prompt_ids and ids and logprobs):
        return {}
    for numbers in (prompt_ids, ids):
        if not isinstance(numbers, list) or not all(
            type(id) is int and 0 <= id < _IDS for id in numbers
        ):
            raise EngineError("the answer's token ids are none")
    if not all(type(p) in (int, float) and math.isfinite(p) for p in logprobs):
        raise EngineError("the answer's log-probabilities are none")
    if len(ids) != len(logprobs):
        return {}
    floats = tuple(map(float, logprobs))
    return {"prompt_ids": tuple(prompt_ids), "reply_ids": tuple(ids), "logprobs": floats}


def parse_models(answer: Any) -> list[str]:
    """The names in a server's list of models; empty where it is none."""
    try:
        names = [one["id"] for one in answer["data"]]
    except (KeyError, TypeError):
        return []
    return [name for name in names if isinstance(name, str)]


def error_text(content: bytes) -> str:
    """What a server says of an error, in as many words as it likes."""
    text = content.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for name in ("error", "message", "detail"):
        found = found.get(name, found) if isinstance(found, dict) else found
    return found if isinstance(found, str) else text


def is_context_overflow(said: str) -> bool:
    """Whether an error says that a prompt is longer than the server's model reads."""
    return _NO_ROOM.search(said) is not None
