"""One episode's messages and replies, laid out for the model as `env.history` says."""

from collections.abc import Sequence
from dataclasses import replace

from agentrl.config import History
from agentrl.data.tags import between
from agentrl.errors import ActionError
from agentrl.policies.chat import ChatEncoder
from agentrl.types import IMAGE, Image, Message, Prompt

MEMORY = "memory"
MOST_REMEMBERED = 1000
"""Characters of a memory; what is longer is cut, so that prompts do not grow without end."""


class Conversation:
    """One episode's messages and replies, as the model reads them.

    With a history that carries a memory, what a reply holds between `<memory>` and `</memory>`
    stands in the same tags before the messages that follow, until another reply writes it anew.

    Args:
        encoder: of the model.
        instructions: the system's message; may be empty.
        history: what of the conversation a prompt shows. Where it shows all, every prompt begins
            with the one before and its reply.
    """

    def __init__(
        self, encoder: ChatEncoder, instructions: str, history: History | None = None
    ) -> None:
        self._encoder = encoder
        self._history = history or History()
        if self._history.carries_memory and instructions:
            instructions = f"{instructions} {_told(self._history)}"
        self._preamble = encoder.preamble(instructions)
        self._questions: list[tuple[int, ...]] = []
        self._images: list[tuple[Image, ...]] = []
        self._answers: list[tuple[int, ...]] = []
        self._memory = ""

    def observe(self, message: Message) -> Prompt:
        """Add a message; the prompt for the reply to it.

        Raises:
            ValueError: `<image>` does not stand once for each picture.
        """
        assert len(self._questions) == len(self._answers), "the last prompt has no answer yet"
        ids, images = self._encoder.question(self._reminded(message))
        self._questions.append(ids)
        self._images.append(images)
        turns = self._history.turns
        first = 0 if turns is None else max(0, len(self._questions) - turns)
        token_ids = list(self._preamble)
        for question, answer in zip(self._questions[first:], self._answers[first:], strict=False):
            token_ids += question + answer
        token_ids += ids
        shown = tuple(image for images in self._images[first:] for image in images)
        self._encoder.kit.collapse(token_ids, shown)  # one run of image tokens for each picture
        return Prompt(token_ids=tuple(token_ids), images=shown)

    def answer(self, reply_ids: Sequence[int]) -> None:
        """Keep a reply, with the very ids that were sampled."""
        assert len(self._questions) == len(self._answers) + 1, "there is nothing to answer"
        self._answers.append((*reply_ids, *self._encoder.closing(reply_ids)))
        if self._history.carries_memory:
            self._memory = remembered(self._encoder.text(reply_ids), self._memory)

    def _reminded(self, message: Message) -> Message:
        if not self._memory:
            return message
        # What the model has written is text: no picture, whatever it looks like.
        words = self._memory.replace(IMAGE, "<image >")
        return replace(message, text=f"<{MEMORY}>{words}</{MEMORY}>\n{message.text}")


def remembered(reply: str, before: str) -> str:
    """The memory after a reply: what it wrote, or the one before where it wrote none."""
    try:
        return between(reply, MEMORY).strip()[:MOST_REMEMBERED]
    except ActionError:
        return before


def _told(history: History) -> str:
    turns = history.turns
    shown = "the last screen" if turns == 1 else f"the last {turns} screens"
    return (
        f"You see {shown} alone. What you will need later, write down as <{MEMORY}>...</{MEMORY}> "
        "before your action: it is shown to you with the next screens, until you write it anew."
    )
