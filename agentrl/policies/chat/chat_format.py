"""The interface of chat formats, which turn messages into prompts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agentrl.data.chat_messages import ToolCall
from agentrl.errors import ConfigError

Piece = str | int | tuple[int, ...]
"""Part of a prompt: text, which is always encoded as plain text; the id of a special token; or the
ids of an image."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ChatModel:
    """Properties of a model that a chat format may use."""

    path: Path
    """The model's folder."""
    token_ids: Mapping[str, int]
    """Maps the text of each added token to its id; tokens of only white space are left out."""
    image_text: str
    """Text that the model's chat template emits for an image; empty for models without vision."""
    options: Mapping[str, Any]
    """`model.chat_options`."""

    def split(self, text: str) -> tuple[Piece, ...]:
        """Split the format's own text, replacing tokens in `token_ids` with their ids."""
        pieces: list[Piece] = []
        names = sorted(self.token_ids, key=len, reverse=True)
        while text:
            found = [(text.find(name), -len(name), name) for name in names if name in text]
            if not found:
                return (*pieces, text)
            start, _, name = min(found)
            pieces += [text[:start]] if start else []
            pieces.append(self.token_ids[name])
            text = text[start + len(name) :]
        return tuple(pieces)


class ChatFormat(ABC):
    """Turns the messages of a conversation into a prompt, message by message.

    A prompt consists of the first message, the sampled reply, the next message, the next reply and
    so on. Replies are inserted with the ids that were sampled, so a format writes only the text
    around them.
    """

    end_id: int
    """The token that ends a reply."""
    reply_prefix: str = ""
    """Text at the end of a prompt that counts as part of the reply, such as an opened `<think>`."""
    protected: frozenset[str] = frozenset()
    """Tokens that mark turns, which are encoded as plain text when they occur in messages."""

    @classmethod
    @abstractmethod
    def open(cls, model: ChatModel) -> Self:
        """Open the format for a model.

        Raises:
            ConfigError: the model does not fit the format.
        """

    @abstractmethod
    def first(self, system: str, role: str, parts: Sequence[Piece]) -> tuple[Piece, ...]:
        """Write a prompt of one message, from the start of the conversation up to the reply.

        Args:
            system: the system message; may be empty.
            role: the message's role, such as `user`.
            parts: the message's content, text and images.
        """

    @abstractmethod
    def following(self, role: str, parts: Sequence[Piece]) -> tuple[Piece, ...]:
        """Write a later message, from the end of the previous reply to the start of the next reply.

        Args:
            role: the message's role.
            parts: the message's content, text and images.
        """

    def before_past_reply(self, prompt: Sequence[Piece]) -> tuple[Piece, ...]:
        """Return a prompt from `first` or `following` with the header of a past reply.

        A chat template may open a thought for the next reply but not for past replies.
        """
        return tuple(prompt)

    def past_reply(self, text: str) -> str:
        """Return the text that later prompts show for a reply that was not sampled.

        A chat template may leave out the reply's thoughts.
        """
        return text

    def results(self, results: Sequence[str]) -> tuple[Piece, ...]:
        """Write several tool results, from the end of the previous reply to the start of the next.

        Raises:
            ConfigError: the format does not support several results in a row.
        """
        raise ConfigError(
            f"{type(self).__name__} does not support several tool results in a row; join them into "
            "one message"
        )

    def with_tools(self, system: str, tools: Sequence[Mapping[str, Any]]) -> str:
        """Add the definitions of functions to the system message.

        Args:
            system: the system message; may be empty.
            tools: definitions in OpenAI's format, `{type: function, function: {name, parameters,
                ...}}`.

        Raises:
            ConfigError: the format does not support tools.
        """
        raise ConfigError(
            f"{type(self).__name__} does not support tools; put their definitions into the system "
            "message"
        )

    def with_tool_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Return the text of a reply that calls functions after some text.

        Raises:
            ConfigError: the format does not support tool calls.
        """
        raise ConfigError(
            f"{type(self).__name__} does not support tool calls; put them into the reply's text"
        )

    def opening(self) -> tuple[Piece, ...]:
        """Return the header of a reply, for prompts that leave out the message before it.

        If the header is empty, an empty message replaces the message that is left out.
        """
        return ()

    def closing(self) -> tuple[Piece, ...]:
        """Return the pieces between a reply's end token and a later message."""
        return ()
