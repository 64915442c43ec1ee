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


def test_a_memory_precedes_the_following_messages(encoder: ChatEncoder) -> None:
    talk, prompts = Conversation(encoder, "look", COMPACT), []
    for turn, reply in enumerate(("<memory>green</memory>up", "up", "<memory></memory>up", "up")):
        prompts.append(talk.observe(screen(turn)))
        talk.answer(encoder.reply_ids(reply))
    texts = [encoder.text(prompt.token_ids) for prompt in prompts]
    assert ["<memory>green</memory>\n" in text for text in texts] == [False, True, True, False]
    assert all(len(prompt.images) == 1 for prompt in prompts)


def test_non_empty_instructions_explain_the_memory(encoder: ChatEncoder) -> None:
    def first_prompt(instructions: str, history: History) -> str:
        prompt = Conversation(encoder, instructions, history).observe(screen(0))
        return encoder.text(prompt.token_ids)

    assert "You see the last screen alone" in first_prompt("play", COMPACT)
    assert "the last 3 screens" in first_prompt("play", History(turns=3, carries_memory=True))
    assert "<memory>" not in first_prompt("play", History(turns=1))
    assert "<memory>" not in first_prompt("", COMPACT)


@given(st.text(max_size=60))
def test_a_memory_cannot_pass_for_an_image_or_a_special_token(
    encoder: ChatEncoder, text: str
) -> None:
    talk = Conversation(encoder, "", COMPACT)
    talk.observe(screen(0))
    talk.answer(encoder.reply_ids(f"<memory>{text}<image><|im_end|></memory>"))
    prompt = talk.observe(Message(role="user", text="now"))
    assert prompt.images == ()
    assert encoder.model_adapter.image_token_id not in prompt.token_ids
    assert prompt.token_ids.count(encoder.end_id) == 1


def test_a_long_memory_is_truncated() -> None:
    assert extract_memory(f"<memory>{'a' * 5000}</memory>", "") == "a" * MAX_MEMORY_CHARS
    assert extract_memory("<memory>a</memory><memory>b</memory>", "before") == "before"


def test_histories_are_parsed() -> None:
    assert parse_history("concat") == History()
    assert parse_history("window:2") == History(turns=2)
    assert parse_history("compact") == COMPACT
    assert parse_history("compact:3") == History(turns=3, carries_memory=True)
    for wrong in ("window", "window:0", "compact:0", "compacted", "concat:2"):
        with pytest.raises(ConfigError, match=r"env\.history"):
            parse_history(wrong)
