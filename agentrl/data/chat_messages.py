"""Read conversations from data sets: lists of messages in OpenAI's or ShareGPT's format."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from agentrl.data.tables import BadRow
from agentrl.text.formatting import quoted
from agentrl.types import IMAGE

_ROLES = ("system", "user", "assistant", "tool")
_SHARE_GPT = {
    "human": "user",
    "gpt": "assistant",
    "system": "system",
    "observation": "tool",
    "function_call": "assistant",
}


@dataclass(slots=True, kw_only=True, frozen=True)
class ToolCall:
    """A tool call in an assistant message."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(slots=True, kw_only=True, frozen=True)
class ChatMessage:
    """One message of a conversation."""

    role: str
    text: str
    """Text of the message, with one `<image>` per image."""
    images: tuple[Any, ...]
    """Undecoded images; None for an image that is in a separate column."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls that follow the text; the model's chat format determines how they are written."""
    results: tuple[str, ...] = ()
    """Texts of several consecutive tool results, joined in `text`; empty otherwise."""


def history_messages(pairs: Any) -> list[dict[str, Any]]:
    """Read the messages of Alpaca's `history`, a list of [question, reply]."""
    if not isinstance(pairs, list | tuple) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
    ):
        raise BadRow(f"its history must be a list of [question, reply], not {quoted(pairs)}")
    return [
        {"role": role, "content": text}
        for pair in pairs
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]


def read_conversation(value: Any) -> list[ChatMessage]:
    """Read the messages of a conversation.

    Args:
        value: a list of `{role, content}` or of ShareGPT's `{from, value}`, or either as JSON text.
            The content is text or a list of parts: `{type: text, text}`, `{type: image, image}`,
            `{type: image_url, image_url}`. A message may have `tool_calls` instead, or be
            ShareGPT's `function_call`, whose value is one call or a list of them.

    Raises:
        BadRow: the value is not a valid list of messages.
    """
    value = _parsed(value, "its list of messages")
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, Sequence) or not value:
        raise BadRow(
            f"its messages must be a list with at least one message, not {quoted(str(value))}"
        )
    for message in value:
        if not isinstance(message, Mapping):
            raise BadRow(f"a message must be an object with a role, not {type(message).__name__}")
    return [_message(message) for message in value]


def check_roles(messages: Sequence[ChatMessage]) -> None:
    """Raise `BadRow` for the first message with an unknown role."""
    for message in messages:
        if message.role not in _ROLES:
            raise BadRow(f"unknown role {message.role!r}; must be one of {', '.join(_ROLES)}")


def alternating(messages: Sequence[ChatMessage]) -> tuple[str, list[ChatMessage]]:
    """Return the system message, and the other messages as alternating questions and replies.

    Consecutive messages of the same role are joined; tool messages keep their separate `results`.

    Raises:
        BadRow: messages of different roles, or no message, precede a reply; or one of several tool
            results has an image.
    """
    joined: list[ChatMessage] = []
    for message in messages:
        if joined and joined[-1].role == message.role:
            results: tuple[str, ...] = ()
            # Keep the texts apart, because chat templates wrap each tool result separately.
            if message.role == "tool":
                if joined[-1].images or message.images:
                    raise BadRow("one of several consecutive tool results has an image")
                results = (*(joined[-1].results or (joined[-1].text,)), message.text)
            joined[-1] = ChatMessage(
                role=message.role,
                text=f"{joined[-1].text}\n\n{message.text}",
                images=(*joined[-1].images, *message.images),
                tool_calls=(*joined[-1].tool_calls, *message.tool_calls),
                results=results,
            )
        else:
            joined.append(message)
    system = joined.pop(0).text if joined and joined[0].role == "system" else ""
    roles = [message.role for message in joined]
    if "system" in roles:
        raise BadRow("a system message must come first")
    if roles[:1] == ["assistant"]:
        raise BadRow("its first message is a reply of the assistant")
    for role, following in pairwise(roles):
        if (role == "assistant") == (following == "assistant"):
            raise BadRow(f"a {following} message follows a {role} message")
    if any(message.images for message in joined if message.role == "assistant"):
        raise BadRow("a reply has images, which a model cannot write")
    return system, joined


def with_images(messages: Sequence[ChatMessage], column: Sequence[Any]) -> dict[str, Any]:
    """Return the messages with all images, taken from their parts or else from the column.

    If the text has no `<image>`, the column's images go first in the first user message.
    """
    inside = [image for message in messages for image in message.images]
    given = [image for image in inside if image is not None]
    if given and column:
        raise BadRow("it has images both in its messages and in a separate column")
    images = given or list(column)
    if images and not messages:
        raise BadRow(f"it has {len(images)} images, but no user message to show them in")
    if not inside and images:
        first = next((n for n, message in enumerate(messages) if message.role == "user"), 0)
        marked = replace(
            messages[first],
            text=IMAGE * len(images) + messages[first].text,
            images=(None,) * len(images),
        )
        messages = [*messages[:first], marked, *messages[first + 1 :]]
    elif len(inside) != len(images):
        raise BadRow(f"it has {len(inside)} {IMAGE} placeholders but {len(images)} images")
    return {"messages": tuple(messages), "images": tuple(images)}


def _message(message: Mapping[str, Any]) -> ChatMessage:
    role = message.get("role") or _SHARE_GPT.get(str(message.get("from")), message.get("from"))
    # In columnar formats, every message has all keys, with null for missing values.
    content = message.get("content")
    if content is None:
        content = message.get("value")
    calls = message.get("tool_calls") or ()
    if message.get("from") == "function_call":
        calls, content = _parsed(content, "a function_call"), ""
    elif calls and content is None:
        content = ""
    text, images = "", []
    for piece, image in _parts(content):
        text += piece
        if piece is IMAGE:
            images.append(image)
    return ChatMessage(
        role=str(role), text=text, images=tuple(images), tool_calls=_read_tool_calls(calls)
    )


def _read_tool_calls(value: Any) -> tuple[ToolCall, ...]:
    """Read calls in OpenAI's (`{function: {name, arguments}}`) or LLaMA-Factory's format."""
    calls = []
    for call in value if isinstance(value, list | tuple) else [value]:
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise BadRow(f"a tool call must have a name and arguments, got {quoted(str(call))}")
        arguments = _parsed(function.get("arguments") or {}, "the arguments of a tool call")
        if not isinstance(arguments, Mapping):
            raise BadRow(
                f"the arguments of a tool call must be an object, not {quoted(str(arguments))}"
            )
        calls.append(ToolCall(name=function["name"], arguments=arguments))
    return tuple(calls)


def _parsed(value: Any, what: str) -> Any:
    """Parse a value if it is JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise BadRow(f"{what} is not valid JSON: {error}") from None


def _parts(content: Any) -> Iterator[tuple[str, Any]]:
    """Split a message into pieces: (text, None), or (`<image>`, the undecoded image)."""
    if isinstance(content, str):
        yield from _text(content)
        return
    if not isinstance(content, Sequence):
        raise BadRow(f"a message's content must be text or parts, not {type(content).__name__}")
    for part in content:
        if isinstance(part, str):
            yield from _text(part)
        elif not isinstance(part, Mapping):
            raise BadRow(f"a message part must be text or an object, not {type(part).__name__}")
        elif part.get("type") == "text" or (part.get("text") and "type" not in part):
            yield from _text(str(part.get("text") or ""))
        elif part.get("type") in ("image", "image_url", "input_image"):
            names = ("image", "image_url", "path", "bytes")
            held = next((part[name] for name in names if part.get(name)), None)
            yield IMAGE, held.get("url", held) if isinstance(held, Mapping) else held
        else:
            raise BadRow(f"a message part has the unknown type {part.get('type')!r}")


def _text(text: str) -> Iterator[tuple[str, Any]]:
    """Split a text at `<image>`, which stands for an image in a separate column."""
    first, *rest = text.split(IMAGE)
    yield first, None
    for piece in rest:
        yield IMAGE, None
        yield piece, None
