"""Conversations as data sets hold them: a list of messages, as OpenAI's interface has it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.data.tables import BadRow
from agentrl.types import IMAGE

_ROLES = (
    ["user"],
    ["user", "assistant"],
    ["system", "user"],
    ["system", "user", "assistant"],
)


@dataclass(slots=True, kw_only=True, frozen=True)
class Question:
    """What a conversation asks."""

    problem: str
    """`<image>` stands once for each picture."""
    images: tuple[Any, ...]
    """As they stand there; None for one that another column holds."""
    answer: str | None
    """The assistant's words, if it has any."""


def read_messages(value: Any) -> Question:
    """The question of a conversation, and its answer if that is in it.

    Args:
        value: a list of `{role, content}`, or that as JSON text. A content is text, or a list of
            parts: `{type: text, text}`, `{type: image, image}`, `{type: image_url, image_url}`.

    Raises:
        BadRow: it is no such list, or asks more than one question.
    """
    messages = _listed(value)
    words: list[str] = []
    images: list[Any] = []
    answer: str | None = None
    roles = [message.get("role") for message in messages]
    if roles not in _ROLES:
        raise BadRow(
            f"its messages are by {roles}; a question is one user's message, after a system's or "
            "not, with the assistant's answer behind it or not"
        )
    for message in messages:
        text = ""
        for piece, image in _parts(message.get("content")):
            text += piece
            if piece is IMAGE:
                images.append(image)
        if message["role"] == "assistant":
            answer = text.strip()
        else:
            words.append(text)
    return Question(problem="\n\n".join(words), images=tuple(images), answer=answer)


def _listed(value: Any) -> Sequence[Mapping[str, Any]]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise BadRow(f"its messages are no JSON: {error}") from None
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, Sequence) or not value:
        raise BadRow(f"its messages are {type(value).__name__}, not a list of messages")
    for message in value:
        if not isinstance(message, Mapping):
            raise BadRow(f"a message is {type(message).__name__}, not an object with a role")
    return value


def _parts(content: Any) -> Iterator[tuple[str, Any]]:
    """The pieces of a message; `<image>` itself for a picture, and where that is."""
    if isinstance(content, str):
        yield from _text(content)
        return
    if not isinstance(content, Sequence):
        raise BadRow(f"a message's content is {type(content).__name__}, neither text nor parts")
    for part in content:
        if isinstance(part, str):
            yield from _text(part)
        elif not isinstance(part, Mapping):
            raise BadRow(f"a part of a message is {type(part).__name__}")
        elif part.get("type") == "text" or (part.get("text") and "type" not in part):
            yield from _text(str(part.get("text") or ""))
        elif part.get("type") in ("image", "image_url", "input_image"):
            yield IMAGE, _picture(part)
        else:
            raise BadRow(f"a part of a message has the type {part.get('type')!r}")


def _text(text: str) -> Iterator[tuple[str, Any]]:
    """A text, in which `<image>` may stand for a picture of another column."""
    first, *rest = text.split(IMAGE)
    yield first, None
    for piece in rest:
        yield IMAGE, None
        yield piece, None


def _picture(part: Mapping[str, Any]) -> Any:
    for name in ("image", "image_url", "path", "bytes"):
        held = part.get(name)
        if held:
            return held.get("url", held) if isinstance(held, Mapping) else held
    return None
