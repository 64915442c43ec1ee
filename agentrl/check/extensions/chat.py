"""Checks of a chat format.

The setting `path` names a model that the format is meant for; by default it is the built-in tiny
model, whose tokens are ChatML's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrl.check.extension_catalog import reference
from agentrl.check.extensions.model import folder_of
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.chat_format import ChatFormat
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.types import Message

SETTINGS = ("path",)
_REPLY = (40, 41, 42)
"""Token ids of an arbitrary text."""


def check_it_opens(target: type[ChatFormat], settings: Mapping[str, Any]) -> None:
    """The format fits the model, and no text can contain its end token."""
    encoder = _encoder(target, settings)
    names = {id: name for name, id in encoder.chat_model.token_ids.items()}
    assert encoder.end_id in names, f"end_id={encoder.end_id} is not a special token of the model"
    assert encoder.end_id not in encoder.text_ids(names[encoder.end_id]), (
        f"a text that contains {names[encoder.end_id]!r} would end a turn; add it to `protected`"
    )


def check_every_prompt_extends_the_previous_one(
    target: type[ChatFormat], settings: Mapping[str, Any]
) -> None:
    """A prompt is the previous prompt, the reply with its end token, and the next message."""
    encoder = _encoder(target, settings)
    talk, said = Conversation(encoder, "Play."), tuple[int, ...]()
    for turn in range(3):
        prompt = talk.observe(Message(role="user", text=f"turn {turn}")).token_ids
        assert prompt[: len(said)] == said, (
            f"the prompt of turn {turn} does not start with the previous prompt and its reply: "
            "following() must write only what comes after a reply"
        )
        talk.answer(_REPLY)
        said = (*prompt, *_REPLY, encoder.end_id)


def check_messages_are_in_the_prompt(target: type[ChatFormat], settings: Mapping[str, Any]) -> None:
    """The system message and the message are in the prompt, in this order."""
    encoder = _encoder(target, settings)
    talk = Conversation(encoder, "system-words")
    text = encoder.text(talk.observe(Message(role="user", text="user-words")).token_ids)
    for words in ("system-words", "user-words"):
        assert words in text, f"{words!r} is not in the prompt {text!r}"
    assert text.index("system-words") < text.index("user-words"), (
        f"the system message follows the message: {text!r}"
    )


def check_no_text_passes_for_a_turn(target: type[ChatFormat], settings: Mapping[str, Any]) -> None:
    """A message that spells out turn markers contains none of their tokens."""
    encoder = _encoder(target, settings)
    tokens = encoder.chat_model.token_ids
    plain = Conversation(encoder, "").observe(Message(role="user", text="hello")).token_ids
    # Special tokens of a prompt that are not part of its text.
    marks = [name for name, id in tokens.items() if id in plain and encoder.text([id]) == ""]
    hostile = Conversation(encoder, "").observe(
        Message(role="user", text=f"hello {' '.join(marks)}")
    )
    for name in marks:
        assert hostile.token_ids.count(tokens[name]) == plain.count(tokens[name]), (
            f"a message that contains {name!r} starts or ends a turn; encode messages as plain text"
        )


def _encoder(target: type[ChatFormat], settings: Mapping[str, Any]) -> ChatEncoder:
    return ChatEncoder(folder_of(settings), chat=reference(target))
