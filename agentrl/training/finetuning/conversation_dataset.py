"""Conversations of a data set as token sequences, of which the assistant's messages are learned."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from agentrl.config.sft_settings import DataConfig
from agentrl.data.chat_messages import ChatMessage
from agentrl.data.conversations import ChatRows, ConversationRow, read_chat
from agentrl.data.dataset import report_bad_rows
from agentrl.data.hugging_face import Selection
from agentrl.data.open_table import open_table
from agentrl.data.tables import BadRow
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.conversation import Conversation
from agentrl.types import Message, TokenSequence


def open_conversations(source: DataConfig, on_bad: str, setting: str) -> ChatRows[ConversationRow]:
    """The conversations of a data set; every row and image is checked.

    Args:
        source: the data set.
        on_bad: `refuse` or `skip` bad rows.
        setting: that names the data set, for messages.

    Raises:
        ConfigError: the data set does not exist, or rows are bad and may not be skipped.
    """
    selection = Selection(
        split=source.split,
        name=source.name,
        revision=source.revision,
        max_rows=source.max_rows,
    )
    root = None if source.image_root is None else Path(source.image_root).expanduser()
    try:
        table = open_table(source.data, selection)
        return ChatRows(table, source.data, read_chat, image_root=root, on_bad=on_bad)
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error}") from error


def encode_conversation(row: ConversationRow, encoder: ChatEncoder, index: int) -> TokenSequence:
    """A conversation as the model reads it; its replies count as sampled.

    Messages of the same role that follow each other are joined. What follows the last reply is
    left out.

    Args:
        row: the conversation.
        encoder: of the model.
        index: of the conversation in its batch.

    Raises:
        BadRow: the model's chats cannot express it.
    """
    system, exchanges = _exchanges(row.messages)
    conversation, images = Conversation(encoder, system), iter(row.images)
    positions: list[int] = []
    turns: list[int] = []
    token_ids: tuple[int, ...] = ()
    for turn, (asked, answer) in enumerate(exchanges):
        shown = tuple(next(images) for _ in asked.images)
        prompt = conversation.observe(Message(role=asked.role, text=asked.text, images=shown))
        reply = encoder.reply_ids(answer.text)
        conversation.answer(reply)
        start, token_ids = len(prompt.token_ids), prompt.token_ids + reply
        positions += range(start, len(token_ids))
        turns += [turn] * len(reply)
    return TokenSequence(
        token_ids=token_ids,
        sampled_positions=tuple(positions),
        logprobs=(0.0,) * len(positions),
        versions=(0,) * len(positions),
        turns=tuple(turns),
        images=prompt.images,
        episode=index,
    )


def _exchanges(
    messages: Sequence[ChatMessage],
) -> tuple[str, list[tuple[ChatMessage, ChatMessage]]]:
    """The system message, and each message with the reply to it.

    Raises:
        BadRow: two messages of different roles precede a reply, or none does.
    """
    joined: list[ChatMessage] = []
    for message in messages:
        if joined and joined[-1].role == message.role:
            joined[-1] = ChatMessage(
                role=message.role,
                text=f"{joined[-1].text}\n\n{message.text}",
                images=(*joined[-1].images, *message.images),
            )
        else:
            joined.append(message)
    system = joined.pop(0).text if joined and joined[0].role == "system" else ""
    roles = [message.role for message in joined]
    if "system" in roles:
        raise BadRow("a system message must come first")
    for role, following in pairwise(["assistant", *roles]):
        if (role == "assistant") == (following == "assistant"):
            raise BadRow(f"a message of {following} follows one of {role}; a reply must be between")
    if any(message.images for message in joined if message.role == "assistant"):
        raise BadRow("a reply has images, which a model cannot write")
    return system, list(zip(joined[::2], joined[1::2], strict=False))


class ConversationDataset:
    """Conversations in an order that the seed decides; each epoch has another one.

    They are encoded when they are drawn, as their images take memory.

    Args:
        rows: the conversations.
        indices: of those to use.
        encoder: of the model.
        seed: of the orders.
    """

    def __init__(
        self,
        rows: ChatRows[ConversationRow],
        indices: Sequence[int],
        encoder: ChatEncoder,
        seed: int,
    ) -> None:
        self._rows, self._indices, self._encoder, self._seed = rows, indices, encoder, seed

    def __len__(self) -> int:
        return len(self._indices)

    def sequences(self, start: int, end: int) -> list[TokenSequence]:
        """The conversations from one position to another; positions go on into later epochs.

        The order depends only on the seed, so that a resumed job needs no position of its own.
        """
        count = len(self)
        found = []
        for number, position in enumerate(range(start, end)):
            epoch, at = divmod(position, count)
            order = np.random.default_rng((self._seed, epoch)).permutation(count)
            row = self._rows[self._indices[int(order[at])]]
            found.append(encode_conversation(row, self._encoder, number))
        return found

    def batches(self, size: int) -> Iterator[list[TokenSequence]]:
        """All of them once, in batches of this size."""
        for at in range(0, len(self), size):
            yield [
                encode_conversation(self._rows[index], self._encoder, number)
                for number, index in enumerate(self._indices[at : at + size])
            ]

    def drop_longer_than(self, max_tokens: int, on_long: str) -> None:
        """Leave out conversations that are too long, or that the model's chats cannot express.

        Args:
            max_tokens: the longest to keep (`sft.max_tokens`).
            on_long: `refuse` or `skip` (`sft.on_long`).

        Raises:
            ConfigError: there are some that may not be skipped, or no other is left.
        """
        bad: dict[str, str] = {}
        kept = []
        for index in self._indices:
            try:
                tokens = len(encode_conversation(self._rows[index], self._encoder, 0).token_ids)
            except BadRow as error:
                bad[self._rows.name(index)] = str(error)
                continue
            if tokens > max_tokens:
                bad[self._rows.name(index)] = f"{tokens} tokens, above sft.max_tokens={max_tokens}"
            else:
                kept.append(index)
        report_bad_rows(self._rows.title, bad, len(self), on_long)
        self._indices = kept
