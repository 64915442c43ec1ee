"""ChatML, the format of Qwen and many other models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Self

from agentrl.data.chat_messages import ToolCall
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_format import ChatFormat, ChatModel, Piece

_START, _END = "<|im_start|>", "<|im_end|>"


class ChatML(ChatFormat):
    """ChatML, with the system message in its own turn."""

    protected = frozenset({_START, _END})

    def __init__(self, start_id: int, end_id: int) -> None:
        self._start_id, self.end_id = start_id, end_id

    @classmethod
    def open(cls, model: ChatModel) -> Self:
        """Open the format for a model whose tokenizer has ChatML's tokens."""
        for name in (_START, _END):
            if name not in model.token_ids:
                raise ConfigError(
                    f"model.path={model.path}: the tokenizer has no {name}, which "
                    "model.chat=chatml needs"
                )
        return cls(model.token_ids[_START], model.token_ids[_END])

    def first(self, system: str, role: str, parts: Sequence[Piece]) -> tuple[Piece, ...]:
        """Write the system message's turn, if there is one, and the first message."""
        return (*(self._turn("system", [system]) if system else ()), *self.following(role, parts))

    def following(self, role: str, parts: Sequence[Piece]) -> tuple[Piece, ...]:
        """Write the message's turn and the header of the reply."""
        return (*self._turn(role, parts), *self.opening())

    def results(self, results: Sequence[str]) -> tuple[Piece, ...]:
        """Write a turn for each result, and the header of the reply."""
        turns = (piece for text in results for piece in self._turn("tool", [text]))
        return (*turns, *self.opening())

    def opening(self) -> tuple[Piece, ...]:
        return (self._start_id, "assistant\n")

    def _turn(self, role: str, parts: Sequence[Piece]) -> tuple[Piece, ...]:
        return (self._start_id, f"{role}\n", *parts, self.end_id, "\n")

    def with_tool_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Append the calls in Hermes' and Qwen's format, in `<tool_call>` tags."""
        written = [
            json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
            for call in calls
        ]
        tagged = [f"<tool_call>\n{call}\n</tool_call>" for call in written]
        return "\n".join([text, *tagged] if text else tagged)

    def closing(self) -> tuple[Piece, ...]:
        return ("\n",)
