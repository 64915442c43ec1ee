"""The interface of chat formats: how messages become a prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agentrl.data.chat_messages import ToolCall
from agentrl.errors import ConfigError

Piece = str | int | tuple[int, ...]
"""Part of a prompt: text, which is encoded as plain text, whatever it contains; the id of a special
token; or the ids of an image."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ChatModel:
    """Properties of a model that a chat format may use."""

    path: Path
    """The model's folder."""
    token_ids: Mapping[str, int]
    """The tokens that the tokenizer finds before all others, by their text; without white space."""
    image_text: str
    """Text that the model's chat template writes for an image; empty without vision."""
    options: Mapping[str, Any]
    """`model.chat_options`."""

    def split(self, text: str) -> tuple[Piece, ...]:
        """The format's own text, with tokens of `token_ids` as ids."""
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
    """How the messages of a conversation become a prompt, message by message.

    A prompt is the first message, the sampled reply, the next message, the next reply and so on.
    Replies are inserted with the ids that were sampled, so a format writes only what stands
    around them.
    """

    end_id: int
    """The token that ends a reply."""
    reply_prefix: str = ""
    """Text at the end of a prompt that belongs to the reply, such as an opened `<think>`."""
    protected: frozenset[str] = frozenset()
    """Texts of tokens that mark turns: messages that contain them keep them as plain text."""

    @classmethod
    @abstractmethod
    def open(cls, model: ChatModel) -> Self:
        """The format of a model.

        Raises:
            ConfigError: the model does not fit it.
        """

    @abstractmethod
    def first(self, system: str, role: str, parts: Sequence[Piece]) -> tuple[Piece, ...]:
        """A prompt of one message, from the start of the conversation to the start of the reply.

        Args:
            system: the system message; may be empty.
            role: the message's role, such as `user`.
            parts: the message's content, texts and images.
        """

    @abstractmethod
    def following(self, role: str, parts: Sequence[Piece]) -> tuple[Piece, ...]:
        """A later message, from the end of the previous reply to the start of the next one.

        Args:
            role: the message's role.
            parts: the message's content, texts and images.
        """

    def before_past_reply(self, prompt: Sequence[Piece]) -> tuple[Piece, ...]:
        """Return a prompt of `first` or `following` with the header of a reply that is known.

        A chat template may open a thought for the next reply, but not for past ones.
        """
        return tuple(prompt)

    def past_reply(self, text: str) -> str:
        """Return the text of a reply that was not sampled as it stands before later messages.

        A chat template may leave out its thoughts.
        """
        return text

    def results(self, results: Sequence[str]) -> tuple[Piece, ...]:
        """Several results of tools, from the end of the previous reply to the start of the next.

        Raises:
            ConfigError: the format does not write them.
        """
        raise ConfigError(
            f"{type(self).__name__} does not write several results of tools in a row: join them "
            "into one message"
        )

    def with_tools(self, system: str, tools: Sequence[Mapping[str, Any]]) -> str:
        """Return the system message with the definitions of functions in it.

        Args:
            system: the system message; may be empty.
            tools: as OpenAI has them: `{type: function, function: {name, parameters, ...}}`.

        Raises:
            ConfigError: the format has no place for them.
        """
        raise ConfigError(
            f"{type(self).__name__} has no place for tools: write their definitions into the "
            "system message"
        )

    def with_tool_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Return the text of a reply that calls functions after some text.

        Raises:
            ConfigError: the format does not write calls.
        """
        raise ConfigError(
            f"{type(self).__name__} does not write tool calls: write them into the reply's text"
        )

    def opening(self) -> tuple[Piece, ...]:
        """The header of a reply, for prompts that leave out an earlier message.

        If it is empty, an empty message takes the place of one that is left out.
        """
        return ()

    def closing(self) -> tuple[Piece, ...]:
        """Return the pieces between a reply's end token and a later message."""
        return ()
