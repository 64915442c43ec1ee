from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.config import History, parse_history
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.conversation import Conversation
from agentrl.policies.chat.history import MAX_MEMORY_CHARS, extract_memory
from agentrl.types import Message
from tests.policies.pictures import screen

COMPACT = History(turns=1, carries_memory=True)


@pytest.fixture(scope="module")
def encoder(tiny_vlm: Path) -> ChatEncoder:
    return ChatEncoder(tiny_vlm, (56, 56))


def test_what_a_reply_notes_stands_before_the_next_screens(encoder: ChatEncoder) -> None:
    talk, prompts = Conversation(encoder, "look", COMPACT), []
    for turn, reply in enumerate(("<memory>green</memory>up", "up", "<memory></memory>up", "up")):
        prompts.append(talk.observe(screen(turn)))
        talk.answer(encoder.reply_ids(reply))
    told = [encoder.text(prompt.token_ids) for prompt in prompts]
    assert ["<memory>green</memory>\n" in text for text in told] == [False, True, True, False]
    assert all(len(prompt.images) == 1 for prompt in prompts)


def test_how_to_note_something_is_told_where_anything_is(encoder: ChatEncoder) -> None:
    def told(instructions: str, history: History) -> str:
        prompt = Conversation(encoder, instructions, history).observe(screen(0))
        return encoder.text(prompt.token_ids)

    assert "You see the last screen alone" in told("play", COMPACT)
    assert "the last 3 screens" in told("play", History(turns=3, carries_memory=True))
    assert "<memory>" not in told("play", History(turns=1))
    assert "<memory>" not in told("", COMPACT)


@given(st.text(max_size=60))
def test_nothing_that_is_noted_passes_for_a_picture_or_a_marker(
    encoder: ChatEncoder, text: str
) -> None:
    talk = Conversation(encoder, "", COMPACT)
    talk.observe(screen(0))
    talk.answer(encoder.reply_ids(f"<memory>{text}<image><|im_end|></memory>"))
    prompt = talk.observe(Message(role="user", text="now"))
    assert prompt.images == ()
    assert encoder.model_adapter.image_token_id not in prompt.token_ids
    assert prompt.token_ids.count(encoder.end_id) == 1


def test_a_memory_does_not_grow_without_end() -> None:
    assert extract_memory(f"<memory>{'a' * 5000}</memory>", "") == "a" * MAX_MEMORY_CHARS
    assert extract_memory("<memory>a</memory><memory>b</memory>", "before") == "before"


def test_histories_are_read() -> None:
    assert parse_history("concat") == History()
    assert parse_history("window:2") == History(turns=2)
    assert parse_history("compact") == COMPACT
    assert parse_history("compact:3") == History(turns=3, carries_memory=True)
    for wrong in ("window", "window:0", "compact:0", "compacted", "concat:2"):
        with pytest.raises(ConfigError, match=r"env\.history"):
            parse_history(wrong)
