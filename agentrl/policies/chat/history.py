"""The part of an episode that a prompt contains (`env.history`), and the model's memory."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from agentrl.config import History
from agentrl.errors import ActionError
from agentrl.text import tag_content
from agentrl.types import IMAGE, Message

MEMORY = "memory"
MAX_MEMORY_CHARS = 1000
"""Longer memories are truncated, so that prompts do not grow without bound."""
_T = TypeVar("_T")


class PromptHistory:
    """Selects the messages of a prompt, and carries the model's memory from turn to turn.

    With a history that carries a memory, the text between `<memory>` and `</memory>` in a reply is
    prepended to the following messages in the same tags, until another reply replaces it.

    Args:
        history: of the configuration; None includes all messages.
    """

    def __init__(self, history: History | None) -> None:
        self._history = history or History()
        self._memory = ""

    @property
    def has_memory(self) -> bool:
        """Whether replies can write a memory."""
        return self._history.carries_memory

    def instructions(self, text: str) -> str:
        """The system message with the memory's instructions; an empty one stays empty."""
        return f"{text} {_memory_hint(self._history)}" if self.has_memory and text else text

    def with_memory(self, message: Message) -> Message:
        """A new message with the memory in front."""
        if not self._memory:
            return message
        # Text written by the model must not pass for an image placeholder.
        memory = self._memory.replace(IMAGE, "<image >")
        return replace(message, text=f"<{MEMORY}>{memory}</{MEMORY}>\n{message.text}")

    def visible(self, messages: Sequence[_T]) -> Sequence[_T]:
        """The part of the conversation that a prompt contains.

        Args:
            messages: one entry per message of the environment, including the newest.
        """
        turns = self._history.turns
        return messages if turns is None else messages[-turns:]

    def remember(self, reply: str) -> None:
        """Update the memory from a reply, if it is carried."""
        if self.has_memory:
            self._memory = extract_memory(reply, self._memory)


def extract_memory(reply: str, before: str) -> str:
    """The memory in a reply, or the previous one if the reply contains none."""
    try:
        return tag_content(reply, MEMORY).strip()[:MAX_MEMORY_CHARS]
    except ActionError:
        return before


def _memory_hint(history: History) -> str:
    turns = history.turns
    shown = "the last screen" if turns == 1 else f"the last {turns} screens"
    return (
        f"You see {shown} alone. What you will need later, write down as <{MEMORY}>...</{MEMORY}> "
        "before your action: it is shown to you with the next screens, until you replace it."
    )
