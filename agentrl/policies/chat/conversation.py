"""One episode's messages and replies, laid out for the model as `env.history` says."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.config import History
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.history import PromptHistory
from agentrl.types import Image, Message, Prompt


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """A message, and the reply once there is one."""

    question: tuple[int, ...]
    images: tuple[Image, ...]
    answer: tuple[int, ...] | None = None


class Conversation:
    """One episode's messages and replies, as the model reads them.

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
        self._memory = PromptHistory(history)
        self._preamble = encoder.preamble(self._memory.instructions(instructions))
        self._said: list[_Exchange] = []

    def observe(self, message: Message) -> Prompt:
        """Add a message; the prompt for the reply to it.

        Raises:
            ValueError: `<image>` does not stand once for each picture.
        """
        assert not self._said or self._said[-1].answer, "the last prompt has no answer yet"
        ids, images = self._encoder.question(self._memory.reminded(message))
        self._said.append(_Exchange(question=ids, images=images))
        exchanges = self._memory.shown(self._said)
        token_ids = list(self._preamble)
        for exchange in exchanges:
            token_ids += exchange.question + (exchange.answer or ())
        shown = tuple(image for exchange in exchanges for image in exchange.images)
        self._encoder.model_adapter.collapse_image_tokens(
            token_ids, shown
        )  # one run of image tokens for each picture
        return Prompt(token_ids=tuple(token_ids), images=shown)

    def answer(self, reply_ids: Sequence[int]) -> None:
        """Keep a reply, with the very ids that were sampled."""
        assert self._said, "there is nothing to answer"
        assert self._said[-1].answer is None, "it is answered already"
        self._said[-1].answer = (*reply_ids, *self._encoder.closing(reply_ids))
        if self._memory.is_carried:  # only then is it worth its decoding
            self._memory.hear(self._encoder.text(reply_ids))
