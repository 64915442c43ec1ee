"""Encode conversations and text that were not sampled as if they had been."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentrl.data.chat_messages import ChatMessage, alternating
from agentrl.data.tables import BadRow
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.text.formatting import encodable
from agentrl.types import IMAGE, Image, Message, Prompt, TokenSequence


def encode_messages(
    messages: Sequence[ChatMessage],
    images: Sequence[Any],
    encoder: ChatEncoder,
    index: int = 0,
    tools: Sequence[Mapping[str, Any]] = (),
) -> TokenSequence:
    """Encode a conversation for the model.

    Consecutive messages of the same role are joined, except tool results, which stay separate.
    Messages after the last reply are left out.

    Args:
        messages: messages with the roles system, user, assistant and tool.
        images: uint8[H, W, 3], one for each `<image>` in the messages.
        encoder: encoder of the model.
        index: index of the conversation in its batch.
        tools: definitions of functions, in OpenAI's format.

    Raises:
        BadRow: the model's chat format cannot express the conversation.
    """
    system, said = alternating(messages)
    if IMAGE in system:
        raise BadRow("the system message has an image, which models do not support")
    if len(said) < 2:
        raise BadRow("the conversation has no assistant message")
    if any(encodable(message.text) != message.text for message in messages):
        raise BadRow("a message has characters that cannot be encoded, such as lone surrogates")
    system, replies = _written(encoder, system, said[1::2], tools)
    conversation, left = Conversation(encoder, system), iter(images)
    positions: list[int] = []
    turns: list[int] = []
    token_ids: tuple[int, ...] = ()
    for turn, (asked, text) in enumerate(zip(said[::2], replies, strict=False)):
        seen = tuple(next(left) for _ in asked.images)
        if asked.results:
            if turn == 0:
                raise BadRow("the conversation begins with several tool results")
            try:
                prompt = conversation.observe_results(asked.results)
            except ConfigError as error:
                raise BadRow(str(error)) from error
        else:
            prompt = conversation.observe(Message(role=asked.role, text=asked.text, images=seen))
        reply = encoder.reply_ids(text)
        conversation.answer(reply)
        start, token_ids = len(prompt.token_ids), prompt.token_ids + reply
        positions += range(start, len(token_ids))
        turns += [turn] * len(reply)
    # If the conversation ends with a question, the question and its images are left out.
    if next(left, None) is not None and len(said) % 2 == 0:
        raise BadRow(f"there are {len(images)} images, more than the messages refer to")
    return _as_sampled(token_ids, positions, turns, prompt.images, index)


def _written(
    encoder: ChatEncoder,
    system: str,
    answers: Sequence[ChatMessage],
    tools: Sequence[Mapping[str, Any]],
) -> tuple[str, list[str]]:
    """Write the system message with definitions of functions, and replies with their calls."""
    chat = encoder.chat_format
    try:
        return chat.with_tools(system, tools) if tools else system, [
            chat.with_tool_calls(one.text, one.tool_calls) if one.tool_calls else one.text
            for one in answers
        ]
    except ConfigError as error:
        raise BadRow(str(error)) from error


def _as_sampled(
    token_ids: tuple[int, ...],
    positions: Sequence[int],
    turns: Sequence[int],
    images: tuple[Image, ...],
    index: int,
) -> TokenSequence:
    """Mark the tokens at `positions` as sampled, with log-probability 0 and version 0."""
    return TokenSequence(
        token_ids=token_ids,
        sampled_positions=tuple(positions),
        logprobs=(0.0,) * len(positions),
        versions=(0,) * len(positions),
        turns=tuple(turns),
        images=images,
        episode=index,
    )


def encode_text(text: str, encoder: ChatEncoder, index: int = 0) -> TokenSequence:
    """Encode text with its special tokens and an end token; all tokens count as sampled.

    Raises:
        BadRow: the text has characters that cannot be encoded, or image tokens.
    """
    if encodable(text) != text:
        raise BadRow("the text has characters that cannot be encoded, such as lone surrogates")
    token_ids = encoder.document_ids(text)
    if encoder.model_adapter.image_token_id in token_ids:
        raise BadRow("the text contains an image token; use messages and images instead")
    positions = range(1, len(token_ids))
    return _as_sampled(token_ids, positions, [0] * len(positions), (), index)


def encode_prompt(encoder: ChatEncoder, system: str, messages: Sequence[Message]) -> Prompt:
    """Encode the prompt for a reply to the last message.

    Args:
        encoder: encoder of the model.
        system: the system message; may be empty.
        messages: alternating questions and replies, with their images, starting and ending with a
            question. Replies (role `assistant`) are encoded as the chat template writes them.
    """
    *preceding, question = messages
    conversation = Conversation(encoder, system)
    return conversation.observe(replace(question, preceding=tuple(preceding)))
