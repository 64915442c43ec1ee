"""The token ids of one episode's prompts, with the history that `env.history` selects."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.config import History
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.history import PromptHistory
from agentrl.types import Image, Message, Prompt


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """A message, and the reply to it if there is one yet."""

    question: tuple[int, ...]
    images: tuple[Image, ...]
    answer: tuple[int, ...] | None = None


class Conversation:
    """One episode's messages and replies, as the model reads them.

    Args:
        encoder: of the model.
        instructions: the system message; may be empty.
        history: the part of the conversation in each prompt. If it is all of it, every prompt
            extends the previous one and its reply.
    """

    def __init__(
        self, encoder: ChatEncoder, instructions: str, history: History | None = None
    ) -> None:
        self._encoder = encoder
        self._history = PromptHistory(history)
        self._preamble = encoder.preamble(self._history.instructions(instructions))
        self._exchanges: list[_Exchange] = []

    def observe(self, message: Message) -> Prompt:
        """Add a message and return the prompt for the reply to it.

        Raises:
            ValueError: the number of `<image>` placeholders and of images differ.
        """
        assert not self._exchanges or self._exchanges[-1].answer, (
            "the last prompt has no answer yet"
        )
        ids, images = self._encoder.question(self._history.with_memory(message))
        self._exchanges.append(_Exchange(question=ids, images=images))
        exchanges = self._history.visible(self._exchanges)
        token_ids = list(self._preamble)
        for exchange in exchanges:
            token_ids += exchange.question + (exchange.answer or ())
        images_shown = tuple(image for exchange in exchanges for image in exchange.images)
        self._encoder.model_adapter.collapse_image_tokens(
            token_ids, images_shown
        )  # checks the image tokens
        return Prompt(token_ids=tuple(token_ids), images=images_shown)

    def answer(self, reply_ids: Sequence[int]) -> None:
        """Add a reply with exactly the ids that were sampled."""
        assert self._exchanges, "there is no message to answer"
        assert self._exchanges[-1].answer is None, "the last message is already answered"
        self._exchanges[-1].answer = (*reply_ids, *self._encoder.closing(reply_ids))
        if self._history.has_memory:  # otherwise save the decoding
            self._history.remember(self._encoder.text(reply_ids))
