"""A chat format of your own: plain names before each message, for a model without a chat template.

agentrl check chat chat_format.py:Names path=FOLDER
agentrl train CONFIG model.chat=chat_format.py:Names
"""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_format import ChatFormat, ChatModel, Piece

_END = "<|endoftext|>"


class Names(ChatFormat):
    """`USER: ... ASSISTANT: ...`, with one special token after each reply.

    Args:
        end_id: id of the token that ends a reply.
    """

    protected = frozenset({_END})

    def __init__(self, end_id: int) -> None:
        self.end_id = end_id

    @classmethod
    def open(cls, model: ChatModel) -> Names:
        """Create the format for a model whose tokenizer has the end token."""
        if _END not in model.token_ids:
            raise ConfigError(f"model.path={model.path}: the tokenizer has no {_END}")
        return cls(model.token_ids[_END])

    def first(self, system: str, role: str, parts: Sequence[Piece]) -> tuple[Piece, ...]:
        """Return the system message, if any, as a separate paragraph, then the message."""
        return (*([f"{system}\n\n"] if system else ()), *self.following(role, parts))

    def following(self, role: str, parts: Sequence[Piece]) -> tuple[Piece, ...]:
        """Return the message, followed by the name of the replying assistant."""
        return (f"{role.upper()}: ", *parts, *self.opening())

    def opening(self) -> tuple[Piece, ...]:
        """Return just the name, for when a message is left out."""
        return ("\nASSISTANT:",)
