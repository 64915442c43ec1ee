"""Prompts that keep all replies but only the last screens, and texts of first messages."""

from dataclasses import replace

from agentrl.config import History, parse_history
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.types import Message
from tests.policies.pictures import picture


def test_only_the_last_screens_are_shown_and_all_replies_are_kept(encoder: ChatEncoder) -> None:
    talk = Conversation(encoder, "look", parse_history("screens:2"))
    replies = [encoder.reply_ids(f"reply {turn}") for turn in range(4)]
    for turn, reply in enumerate(replies):
        text = f"<image> turn {turn}"
        prompt = talk.observe(Message(role="user", text=text, images=(picture(turn),)))
        assert len(prompt.images) == min(turn + 1, 2)
        fresh = Conversation(encoder, "look")
        for earlier in range(turn + 1):
            shown = earlier > turn - 2
            expected = fresh.observe(
                Message(
                    role="user",
                    text=f"{'<image> ' if shown else ''}turn {earlier}",
                    images=(picture(earlier),) if shown else (),
                )
            )
            if earlier < turn:
                fresh.answer(replies[earlier])
        assert prompt.token_ids == expected.token_ids
        talk.answer(reply)


def test_a_message_with_nothing_but_a_screen_disappears_with_it(encoder: ChatEncoder) -> None:
    talk = Conversation(encoder, "", parse_history("screens:1"))
    first = Message(role="user", text="<image>", images=(picture(0),))
    talk.observe(first)
    talk.answer(encoder.reply_ids("yes"))
    prompt = talk.observe(replace(first, images=(picture(1),)))
    assert len(prompt.images) == 1
    assert encoder.text(prompt.token_ids).count("user") == 1
    assert encoder.text(prompt.token_ids).count("assistant") == 2


def test_a_first_message_has_its_own_text(encoder: ChatEncoder) -> None:
    talk = Conversation(encoder, "look", History(turns=2))
    for turn in range(3):
        message = Message(role="user", text=f"later {turn}", opening_text=f"first {turn}")
        text = encoder.text(talk.observe(message).token_ids)
        talk.answer(encoder.reply_ids(f"reply {turn}"))
    assert "first 1" in text
    assert "later 2" in text
    assert "later 1" not in text


def test_the_first_message_may_bring_the_system_message(encoder: ChatEncoder) -> None:
    talk = Conversation(encoder, "from the environment")
    prompt = talk.observe(Message(role="user", text="hello", system="from the dialect"))
    assert "from the dialect" in encoder.text(prompt.token_ids)
    assert "from the environment" not in encoder.text(prompt.token_ids)
