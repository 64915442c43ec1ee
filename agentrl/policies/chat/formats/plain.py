"""Plain text without a chat format; the model continues the question's text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_format import ChatFormat, ChatModel, Piece
from agentrl.policies.chat.template_rendering import template_variables


class Plain(ChatFormat):
    """Plain text without turns, for base models and for prompts that are already formatted.

    Args:
        start_ids: tokens at the start of every prompt, such as Llama's `<|begin_of_text|>`.
        end_id: token that ends a reply.
    """

    def __init__(self, start_ids: Sequence[int], end_id: int) -> None:
        self._start_ids, self.end_id = tuple(start_ids), end_id

    @classmethod
    def open(cls, model: ChatModel) -> Self:
        """Open the format for a model, with the tokens that its tokenizer puts around text."""
        from tokenizers import Tokenizer

        end = str(template_variables(model.path).get("eos_token"))
        if end not in model.token_ids:
            raise ConfigError(f"model.path={model.path}: the tokenizer has no eos_token ({end})")
        end_id = model.token_ids[end]
        around = Tokenizer.from_file(str(model.path / "tokenizer.json")).encode("").ids
        return cls([id for id in around if id != end_id], end_id)

    def first(self, system: str, role: str, parts: Sequence[Piece]) -> tuple[Piece, ...]:
        """Write the system message, if any, and an empty line, then the question."""
        before = (f"{system}\n\n",) if system else ()
        return (*self._start_ids, *before, *parts)

    def following(self, role: str, parts: Sequence[Piece]) -> tuple[Piece, ...]:
        return tuple(parts)
