"""Conversations that were not sampled as token sequences, whose replies count as sampled."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from agentrl.data.chat_messages import ChatMessage
from agentrl.data.tables import BadRow
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.conversation import Conversation
from agentrl.types import Message, TokenSequence


def encode_messages(
    messages: Sequence[ChatMessage], images: Sequence[Any], encoder: ChatEncoder, index: int = 0
) -> TokenSequence:
    """A conversation as the model reads it.

    Messages of the same role that follow each other are joined. What follows the last reply is
    left out.

    Args:
        messages: of system, user, assistant and tool.
        images: uint8[H, W, 3], one for each `<image>` in them.
        encoder: of the model.
        index: of the conversation in its batch.

    Raises:
        BadRow: the model's chats cannot express it.
    """
    system, exchanges = _exchanges(messages)
    conversation, left = Conversation(encoder, system), iter(images)
    positions: list[int] = []
    turns: list[int] = []
    token_ids: tuple[int, ...] = ()
    for turn, (asked, answer) in enumerate(exchanges):
        seen = tuple(next(left) for _ in asked.images)
        prompt = conversation.observe(Message(role=asked.role, text=asked.text, images=seen))
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
