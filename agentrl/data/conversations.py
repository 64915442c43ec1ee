"""Read rows for supervised learning and for preferences: conversations, and answers compared."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Protocol, TypeVar

from agentrl.data.chat_messages import (
    ChatMessage,
    check_roles,
    history_messages,
    read_conversation,
    with_images,
)
from agentrl.data.row_columns import cell
from agentrl.data.tables import BadRow, Row
from agentrl.text import quoted

_NO_KEYS: Mapping[str, str] = {}
CHAT_KEYS = {
    "messages": ("messages", "conversations", "conversation", "message"),
    "system": ("system",),
    "tools": ("tools",),
    "images": ("images", "image"),
    "prompt": ("prompt", "instruction", "question", "problem", "input"),
    "context": ("input",),
    "history": ("history",),
    "completion": ("completion", "output", "response", "answer", "solution"),
    "thinking": ("thinking",),
    "text": ("text",),
    "labels": ("labels",),
    "chosen": ("chosen",),
    "rejected": ("rejected",),
    "margin": ("margin",),
}
"""Default columns by content, the first that a row fills; `a.b` is the key b of the objects in
column a. `context` is read by default only beside an `instruction` (Alpaca)."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ConversationRow:
    """A conversation to learn from: the replies of the assistant."""

    messages: tuple[ChatMessage, ...]
    images: tuple[Any, ...]
    """One for each `<image>` in the messages, in order."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Definitions of functions, for the system message."""
    prompt_length: int = 0
    """Number of first messages whose replies are not learned."""


@dataclass(slots=True, kw_only=True, frozen=True)
class TextRow:
    """A whole text to learn from, such as a conversation with its special tokens."""

    text: str


@dataclass(slots=True, kw_only=True, frozen=True)
class LabeledRow(ConversationRow):
    """A conversation with a label for each reply of the assistant."""

    labels: tuple[float, ...]
    """Labels from 0 (bad) to 1 (good)."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Preference:
    """Two answers to one prompt, of which the first is better."""

    prompt: tuple[ChatMessage, ...]
    """Common start of both conversations; empty if they differ from the start."""
    chosen: tuple[ChatMessage, ...]
    """May go on with what the user says to a reply, and so on."""
    rejected: tuple[ChatMessage, ...]
    images: tuple[Any, ...]
    """One for each `<image>` in the prompt, in order."""
    chosen_images: tuple[Any, ...]
    """The images of messages after the prompt."""
    rejected_images: tuple[Any, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """Definitions of functions, for the system message."""
    margin: float = 0.0
    """By how much the reward of the better answer should exceed the other's."""


OfflineRow = ConversationRow | TextRow | Preference
T_co = TypeVar("T_co", bound=OfflineRow, covariant=True)


class ReadRow(Protocol[T_co]):
    """`read_chat`, `read_labeled` or `read_preference`."""

    def __call__(self, row: Row, keys: Mapping[str, str] = ...) -> T_co:
        """Read a row.

        Args:
            row: of a table.
            keys: column names by content, where they differ from `CHAT_KEYS`.

        Raises:
            BadRow: it lacks something.
        """


def read_chat(row: Row, keys: Mapping[str, str] = _NO_KEYS) -> ConversationRow | TextRow:
    """Read a row to learn replies from: messages, or a prompt and its completion; or a whole text.

    `messages` are those of TRL, ms-swift and LLaMA-Factory, or ShareGPT's `conversations`. A prompt
    and a completion, as text or messages, are those of TRL, OpenRLHF (`input`, `output`) or Alpaca
    (`instruction`, `input`, `output`, `history`), or R1-V (`problem`, `thinking`, `solution`).
    Replies in a `prompt` are not learned.

    Raises:
        BadRow: it has none of these, there is no answer, or images are missing.
    """
    asked: list[ChatMessage] = []
    if (value := _cell(row, keys, "messages")) is not None:
        answer = _with_system(read_conversation(value), row, keys)
    elif (value := _cell(row, keys, "completion")) is not None:
        if isinstance(value, str) and (thinking := _cell(row, keys, "thinking")):
            value = f"{thinking}\n\n{value}"  # as R1-V joins them
        answer = _as_messages(value, "assistant")
        asked = _read_prompt(row, keys)
        if pairs := _cell(row, keys, "history"):
            history = read_conversation(history_messages(pairs))
            asked, answer = [], [*asked[:-1], *history, *asked[-1:], *answer]
    elif (value := _cell(row, keys, "text")) is not None:
        if not isinstance(value, str) or not value.strip():
            raise BadRow(f"its text is {quoted(value)}, not text to learn from")
        return TextRow(text=value)
    else:
        raise BadRow("it has no messages, no prompt with a completion, and no text")
    messages = [*asked, *answer]
    check_roles(messages)
    if all(message.role != "assistant" for message in answer):
        raise BadRow("it has no assistant message to train on")
    return ConversationRow(
        **with_images(messages, _as_list(_cell(row, keys, "images"))),
        tools=_read_tools(row, keys),
        prompt_length=len(asked),
    )


def read_labeled(row: Row, keys: Mapping[str, str] = _NO_KEYS) -> LabeledRow:
    """Read a conversation as `read_chat` does, with `labels`, one for each reply.

    Raises:
        BadRow: see `read_chat`; or labels are missing, or not from 0 to 1.
    """
    chat, labels = read_chat(row, keys), _cell(row, keys, "labels")
    if isinstance(chat, TextRow):
        raise BadRow("it has no messages")
    replies = sum(message.role == "assistant" for message in chat.messages)
    if not isinstance(labels, list | tuple) or len(labels) != replies:
        raise BadRow(f"labels={labels!r:.60} must be a list of {replies}, one for each reply")
    if not all(isinstance(label, bool | int | float) and 0 <= label <= 1 for label in labels):
        raise BadRow(f"labels={labels!r:.60} must be true or false, or numbers from 0 to 1")
    return LabeledRow(
        messages=chat.messages,
        images=chat.images,
        tools=chat.tools,
        labels=tuple(map(float, labels)),
    )


def read_preference(row: Row, keys: Mapping[str, str] = _NO_KEYS) -> Preference:
    """Read a row with `chosen` and `rejected`, as text or messages, and often a prompt.

    The prompt is text or messages (`prompt`, or LLaMA-Factory's `conversations`). Without one, the
    messages that both answers begin with are the prompt. Images of later messages are in
    `chosen_images` and `rejected_images`, or parts of the messages.

    Raises:
        BadRow: an answer is missing or both are equal, or images are missing.
    """
    chosen, rejected = (
        _as_messages(_cell(row, keys, name), "assistant") for name in ("chosen", "rejected")
    )
    prompt = _preference_prompt(row, keys)
    if not prompt:
        shared = 0
        while shared < min(len(chosen), len(rejected)) and chosen[shared] == rejected[shared]:
            shared += 1
        prompt, chosen, rejected = chosen[:shared], chosen[shared:], rejected[shared:]
    elif chosen[: len(prompt)] == rejected[: len(prompt)] == prompt:  # repeated in both
        chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
    if not chosen or not rejected or chosen == rejected:
        raise BadRow("chosen and rejected must be two different answers")
    for messages in (prompt, chosen, rejected):
        check_roles(messages)
    asked = with_images(prompt, _as_list(_cell(row, keys, "images")))
    better, worse = (
        with_images(messages, _as_list(row.get(f"{name}_images")))
        for name, messages in (("chosen", chosen), ("rejected", rejected))
    )
    return Preference(
        prompt=asked["messages"],
        images=asked["images"],
        chosen=better["messages"],
        chosen_images=better["images"],
        rejected=worse["messages"],
        rejected_images=worse["images"],
        tools=_read_tools(row, keys),
        margin=_read_margin(row, keys),
    )


FORMS: dict[Any, tuple[tuple[str, ...], ...]] = {
    read_chat: (("messages",), ("prompt", "completion"), ("text",)),
    read_labeled: (("messages", "labels"), ("prompt", "completion", "labels")),
    read_preference: (("chosen", "rejected"),),
}
"""The contents that each function needs, in all forms that it reads."""


def _preference_prompt(row: Row, keys: Mapping[str, str]) -> list[ChatMessage]:
    value = _cell(row, keys, "messages")
    messages = [] if value is None else read_conversation(value)
    if messages and messages[-1].role != "assistant":  # otherwise it has an answer, too
        return _with_system(messages, row, keys)
    return _read_prompt(row, keys) if _cell(row, keys, "prompt") else []


def _read_prompt(row: Row, keys: Mapping[str, str]) -> list[ChatMessage]:
    """The messages of a prompt: Alpaca's `input` is below its `instruction`, as in LLaMA-Factory.

    Raises:
        BadRow: it is empty.
    """
    prompt = _cell(row, keys, "prompt")
    context = _cell(row, keys, "context") if "context" in keys or row.get("instruction") else None
    if isinstance(prompt, str) and isinstance(context, str) and context.strip():
        prompt = f"{prompt}\n{context}"
    if not prompt:
        raise BadRow("its prompt is empty")
    return _with_system(_as_messages(prompt, "user"), row, keys)


def _with_system(
    messages: list[ChatMessage], row: Row, keys: Mapping[str, str]
) -> list[ChatMessage]:
    """The messages, after the system message of a column of its own.

    Raises:
        BadRow: they begin with another system message.
    """
    text = _cell(row, keys, "system")
    if not text:
        return messages
    system = ChatMessage(role="system", text=str(text), images=())
    if messages and messages[0].role == "system":
        if messages[0].text != system.text:
            raise BadRow("it has one system message in its messages and another one in a column")
        return messages
    return [system, *messages]


def _read_tools(row: Row, keys: Mapping[str, str]) -> tuple[Mapping[str, Any], ...]:
    """Definitions of functions as OpenAI has them; LLaMA-Factory's are JSON text without a type."""
    tools = _cell(row, keys, "tools")
    if isinstance(tools, str) and tools.strip():
        try:
            tools = json.loads(tools)
        except (ValueError, RecursionError) as error:
            raise BadRow(f"its tools are not valid JSON: {error}") from None
    found = _as_list(tools or None)
    if not all(isinstance(tool, Mapping) for tool in found):
        raise BadRow(f"its tools are {quoted(tools)}, not a list of objects")
    return tuple(
        tool if "function" in tool else {"type": "function", "function": tool} for tool in found
    )


def _read_margin(row: Row, keys: Mapping[str, str]) -> float:
    margin = _cell(row, keys, "margin")
    if margin is None:
        return 0.0
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not isfinite(margin):
        raise BadRow(f"its margin is {quoted(margin)}, not a number")
    return float(margin)


def _cell(row: Row, keys: Mapping[str, str], content: str) -> Any:
    """The first cell with a content that is not null."""
    names = (keys[content],) if content in keys else CHAT_KEYS[content]
    return next((value for name in names if (value := cell(row, name)) is not None), None)


def _as_messages(value: Any, role: str) -> list[ChatMessage]:
    """Messages as they are; text as one message of a role."""
    return read_conversation(
        [{"role": role, "content": value}] if isinstance(value, str) else value
    )


def _as_list(held: Any) -> list[Any]:
    if held is None:
        return []
    return list(held) if isinstance(held, list | tuple) else [held]
