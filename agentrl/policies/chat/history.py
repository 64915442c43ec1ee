"""What of one episode a prompt shows, as `env.history` says, whoever lays it out."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from agentrl.actions.tags import tag_content
from agentrl.config import History
from agentrl.errors import ActionError
from agentrl.types import IMAGE, Message

MEMORY = "memory"
MAX_MEMORY_CHARS = 1000
"""Characters of a memory; what is longer is cut, so that prompts do not grow without end."""
_T = TypeVar("_T")


class PromptHistory:
    """What is shown of the conversation, and what the model has written down.

    With a history that carries a memory, what a reply holds between `<memory>` and `</memory>`
    stands in the same tags before the messages that follow, until another reply writes it anew.

    Args:
        history: of the configuration; None shows all.
    """

    def __init__(self, history: History | None) -> None:
        self._history = history or History()
        self._written = ""

    @property
    def is_carried(self) -> bool:
        """Whether what is written down counts."""
        return self._history.carries_memory

    def instructions(self, words: str) -> str:
        """The system's message, with how to write something down; without one nothing is told."""
        return f"{words} {_told(self._history)}" if self.is_carried and words else words

    def reminded(self, message: Message) -> Message:
        """A new message, with what is remembered in front."""
        if not self._written:
            return message
        # What the model has written is text: no picture, whatever it looks like.
        words = self._written.replace(IMAGE, "<image >")
        return replace(message, text=f"<{MEMORY}>{words}</{MEMORY}>\n{message.text}")

    def shown(self, messages: Sequence[_T]) -> Sequence[_T]:
        """What a prompt holds of all that has been said so far.

        Args:
            messages: one entry for each message of the environment, the newest included.
        """
        turns = self._history.turns
        return messages if turns is None else messages[-turns:]

    def hear(self, reply: str) -> None:
        """Take what a reply writes down, if it counts."""
        if self.is_carried:
            self._written = extract_memory(reply, self._written)


def extract_memory(reply: str, before: str) -> str:
    """The memory after a reply: what it wrote, or the one before where it wrote none."""
    try:
        return tag_content(reply, MEMORY).strip()[:MAX_MEMORY_CHARS]
    except ActionError:
        return before


def _told(history: History) -> str:
    turns = history.turns
    shown = "the last screen" if turns == 1 else f"the last {turns} screens"
    return (
        f"You see {shown} alone. What you will need later, write down as <{MEMORY}>...</{MEMORY}> "
        "before your action: it is shown to you with the next screens, until you write it anew."
    )
