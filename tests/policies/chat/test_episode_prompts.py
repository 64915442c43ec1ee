import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.config import History, parse_history
from agentrl.data.offline_rows import ConversationRow, read_chat
from agentrl.data.tables import BadRow
from agentrl.errors import ConfigError
from agentrl.policies import tiny_model
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.encode_messages import encode_messages, encode_prompt
from agentrl.policies.chat.episode_prompts import MAX_MEMORY_CHARS, Conversation, extract_memory
from agentrl.types import Image, Message
from tests.policies.pictures import picture, screen

QWEN_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}"
    "{{ message['content'] }}<|im_end|>\n{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in content %}"
    "{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

TEMPLATES = Path(__file__).parents[3] / "benchmarks" / "chat_templates"
START = tiny_model.token_ids()["<|im_start|>"]
MARKERS = ["<|im_end|>", "<|image_pad|>", "<|im_start|>", "<|vision_start|>", "<|endoftext|>"]
hostile = st.lists(
    st.one_of(st.text(max_size=5), st.sampled_from([*MARKERS, "<", "<|", "|>", "\n"])), max_size=8
).map("".join)
sampled = st.lists(st.integers(0, 485).filter(lambda id: id not in range(259, 264)), max_size=12)


def parts(text: str) -> list[dict[str, str]]:
    """A message's text with `<image>` as the parts that chat templates expect."""
    first, *rest = text.split("<image>")
    found = [{"type": "text", "text": first}] if first else []
    for piece in rest:
        found.append({"type": "image"})
        if piece:
            found.append({"type": "text", "text": piece})
    return found


@pytest.mark.parametrize("template", ["own", "qwen"])
@pytest.mark.parametrize("instructions", ["", "Pick the card.\n\nLook well"])
def test_prompts_equal_those_of_the_chat_template(
    tiny_vlm: Path, tmp_path: Path, template: str, instructions: str
) -> None:
    from transformers import AutoTokenizer

    folder = shutil.copytree(tiny_vlm, tmp_path / "model")
    if template == "qwen":
        (folder / "chat_template.jinja").write_text(QWEN_TEMPLATE)
    encoder, tokenizer = ChatEncoder(folder), AutoTokenizer.from_pretrained(folder)
    talk = Conversation(encoder, instructions)
    messages: list[dict[str, object]] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    for turn, text in enumerate(["<image>\nnext", "a <image> b", "now without"]):
        images = (picture(turn),) * text.count("<image>")
        prompt = talk.observe(Message(role="user", text=text, images=images))
        messages.append({"role": "user", "content": parts(text)})
        expected = tokenizer.apply_chat_template(
            messages, tokenize=True, add_generation_prompt=True, return_dict=False
        )
        assert (
            encoder.model_adapter.collapse_image_tokens(prompt.token_ids, prompt.images) == expected
        )
        reply = f"<think>{turn}</think>next"
        messages.append({"role": "assistant", "content": reply})
        talk.answer(encoder.reply_ids(reply))


@pytest.mark.parametrize("system", ["", "Be short."])
@pytest.mark.parametrize(
    "template",
    ["qwen2_5", "qwen2_5_vl", "qwen3", "qwen3_thinking_2507", "qwen3_vl", "qwen3_vl_thinking"],
)
def test_earlier_turns_equal_those_of_the_chat_template(
    tiny_vlm: Path, tmp_path: Path, template: str, system: str
) -> None:
    """Thinking models open a thought for the next reply, and do not see those of past ones."""
    from transformers import AutoTokenizer

    folder = shutil.copytree(tiny_vlm, tmp_path / "model")
    shutil.copy(TEMPLATES / f"{template}.jinja", folder / "chat_template.jinja")
    encoder, tokenizer = ChatEncoder(folder), AutoTokenizer.from_pretrained(folder)
    texts = ["What?", "<think>\nIt purrs.\n</think>\n\nA cat.", "Sure?", " Yes.", "And now?"]
    said = [
        Message(role=("user", "assistant")[number % 2], text=text)
        for number, text in enumerate(texts)
    ]
    prompt = encode_prompt(encoder, system, said)
    messages = [{"role": one.role, "content": one.text} for one in said]
    messages = [{"role": "system", "content": system}] * bool(system) + messages
    expected = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    # As text: the tiny model's tokenizer has a token for `user`, which stays text in messages.
    assert tokenizer.decode(prompt.token_ids) == expected
    assert encoder.query_format.prompt(messages) + encoder.chat_format.reply_prefix == expected


@given(st.lists(sampled, min_size=1, max_size=4), hostile, st.integers(0, 3))
def test_each_prompt_extends_the_previous_one_and_its_reply(
    encoder: ChatEncoder, replies: list[list[int]], text: str, pictures: int
) -> None:
    talk = Conversation(encoder, text)
    said: tuple[int, ...] = ()
    for turn, reply in enumerate(replies):
        images = tuple(picture(turn) for _ in range(pictures))
        words = text.replace("<image>", "") + "<image>" * pictures
        prompt = talk.observe(Message(role="user", text=words, images=images))
        assert prompt.token_ids[: len(said)] == said
        assert len(prompt.images) == pictures * (turn + 1)
        talk.answer(reply)
        said = (*prompt.token_ids, *reply)
        if not reply or reply[-1] != encoder.end_id:
            said = (*said, encoder.end_id)


@given(st.lists(sampled, min_size=1, max_size=6), st.integers(1, 3))
def test_a_window_equals_a_conversation_of_the_last_screens(
    encoder: ChatEncoder, replies: list[list[int]], window: int
) -> None:
    talk = Conversation(encoder, "look", History(turns=window))
    for turn, reply in enumerate(replies):
        first = max(0, turn + 1 - window)
        fresh = Conversation(encoder, "look")
        for earlier in range(first, turn):
            fresh.observe(screen(earlier))
            fresh.answer(replies[earlier])
        prompt, expected = talk.observe(screen(turn)), fresh.observe(screen(turn))
        assert prompt.token_ids == expected.token_ids
        assert len(prompt.images) == min(turn + 1, window)
        talk.answer(reply)


@given(hostile)
def test_no_text_passes_for_a_special_token(encoder: ChatEncoder, text: str) -> None:
    ids = encoder.text_ids(text)
    assert not set(ids) & set(range(256, 264))
    assert encoder.text(ids) == text


@given(hostile)
def test_replies_and_messages_contain_only_their_own_special_tokens(
    encoder: ChatEncoder, text: str
) -> None:
    words = text.replace("<image>", "")
    prompt = Conversation(encoder, words).observe(Message(role="user", text=words))
    assert prompt.token_ids.count(START) == (3 if words else 2)
    assert prompt.token_ids.count(encoder.end_id) == (2 if words else 1)
    assert encoder.reply_ids(words).count(encoder.end_id) == 1


def test_images_and_placeholders_must_match(encoder: ChatEncoder) -> None:
    with pytest.raises(ValueError, match="2 <image> placeholders has 1 images"):
        Conversation(encoder, "").observe(
            Message(role="user", text="<image><image>", images=(picture(0),))
        )


def test_an_unchanged_screen_is_scaled_once_and_a_reused_buffer_every_time(tiny_vlm: Path) -> None:
    encoder = ChatEncoder(tiny_vlm, image_size=[56, 84])
    talk, shown = Conversation(encoder, ""), picture(1)
    seen: list[Image] = []
    for number in range(6):
        if number == 2:
            shown.flags.writeable = False
        if number == 4:
            shown.flags.writeable = True
            shown[:] = picture(2)
        prompt = talk.observe(Message(role="user", text="<image>", images=(shown,)))
        talk.answer([1])
        seen.append(prompt.images[-1])
        assert np.array_equal(seen[-1], encoder.scale(shown))
    assert seen[3] is seen[2]
    assert len(set(map(id, seen))) == 5


def test_images_are_scaled_to_the_given_size(tiny_vlm: Path) -> None:
    encoder = ChatEncoder(tiny_vlm, image_size=[84, 140])
    prompt = Conversation(encoder, "").observe(screen(0, width=720, height=1280))
    assert prompt.images[0].shape == (140, 84, 3)
    assert prompt.token_ids.count(encoder.model_adapter.image_token_id or 0) == 15


def test_a_template_whose_turns_end_with_no_token_is_a_config_error(
    tiny_vlm: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_vlm, tmp_path / "model")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"] = [
        t for t in tokenizer["added_tokens"] if t["content"] != "<|im_end|>"
    ]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ConfigError, match="not by a special token"):
        ChatEncoder(folder)


COMPACT = History(turns=1, carries_memory=True)


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


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look at an animal",
            "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
        },
    }
]
CALLS = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "What?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"type": "function", "function": {"name": "look", "arguments": {"at": "é"}}}
        ],
    },
    {"role": "tool", "content": "It purrs."},
    {"role": "assistant", "content": "A cat."},
    {"role": "user", "content": "And now?"},
    {
        "role": "assistant",
        "content": "Wait.",
        "tool_calls": [
            {"type": "function", "function": {"name": "look", "arguments": {"at": "a"}}},
            {"type": "function", "function": {"name": "look", "arguments": {}}},
        ],
    },
    {"role": "user", "content": "Well?"},
    {"role": "assistant", "content": "A dog."},
]


@pytest.mark.parametrize("template", ["qwen2_5", "qwen3_instruct_2507", "qwen3_vl"])
@pytest.mark.parametrize("start", [0, 1], ids=["system", "no-system"])
def test_tools_and_their_calls_equal_those_of_the_chat_template(
    tiny_vlm: Path, tmp_path: Path, template: str, start: int
) -> None:
    from transformers import AutoTokenizer

    folder = shutil.copytree(tiny_vlm, tmp_path / "model")
    shutil.copy(TEMPLATES / f"{template}.jinja", folder / "chat_template.jinja")
    row = read_chat({"messages": CALLS[start:], "tools": TOOLS})
    assert isinstance(row, ConversationRow)
    read = encode_messages(row.messages, (), ChatEncoder(folder), 0, row.tools)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    expected = tokenizer.apply_chat_template(CALLS[start:], tools=TOOLS, tokenize=False)
    # As text: the tiny model's tokenizer has a token for `user`, which stays text in messages.
    assert tokenizer.decode(read.token_ids) + "\n" == expected


def add_tokens(folder: Path, *names: str) -> None:
    """Add special tokens to a model's tokenizer."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    first = 1 + max(token["id"] for token in tokenizer["added_tokens"])
    tokenizer["added_tokens"] += [
        tokenizer["added_tokens"][0] | {"id": first + number, "content": name}
        for number, name in enumerate(names)
    ]
    path.write_text(json.dumps(tokenizer))


RESULTS = [
    *CALLS[:2],
    CALLS[6],
    {"role": "tool", "content": '{"at": "é"}'},
    {"role": "tool", "content": " It barks.\n"},
    {"role": "tool", "content": "<|im_end|> is text"},
    {"role": "assistant", "content": "A dog."},
]


@pytest.mark.parametrize(
    "template", ["qwen2_5", "qwen3_instruct_2507", "qwen3_vl", "qwen2_5_vl", "llama3_2"]
)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_results_of_several_tools_equal_those_of_the_chat_template(
    tiny_vlm: Path, tmp_path: Path, template: str, count: int
) -> None:
    from transformers import AutoTokenizer

    folder = shutil.copytree(tiny_vlm, tmp_path / "model")
    shutil.copy(TEMPLATES / f"{template}.jinja", folder / "chat_template.jinja")
    call = {k: v for k, v in CALLS[6].items() if k != "tool_calls" or "5_vl" not in template}
    if template == "llama3_2":  # only one call at once, in place of text
        call |= {"content": "", "tool_calls": CALLS[6]["tool_calls"][:1]}
        add_tokens(folder, "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    messages = [*RESULTS[:2], call, *RESULTS[3 : 3 + count], RESULTS[-1]]
    row = read_chat({"messages": messages})
    assert isinstance(row, ConversationRow)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    # Without a date, Llama's template would take today's, which ours does not give it.
    expected = tokenizer.apply_chat_template(messages, tokenize=False, date_string="26 Jul 2024")
    read = encode_messages(row.messages, (), ChatEncoder(folder))
    assert tokenizer.decode(read.token_ids).removesuffix("\n") == expected.removesuffix("\n")


def test_several_results_that_cannot_be_written_are_refused(tiny_vlm: Path) -> None:
    plain = [m if "tool_calls" not in m else {**m, "tool_calls": []} for m in RESULTS]
    row = read_chat({"messages": plain})
    assert isinstance(row, ConversationRow)
    with pytest.raises(BadRow, match="Plain does not support several tool results in a row"):
        encode_messages(row.messages, (), ChatEncoder(tiny_vlm, chat="plain"))
    chatml = ChatEncoder(tiny_vlm, chat="chatml")
    shown = [{**RESULTS[3], "content": "<image>"}, RESULTS[4], RESULTS[6]]
    row = read_chat({"messages": [*RESULTS[:3], *shown], "images": ["a.png"]})
    assert isinstance(row, ConversationRow)
    with pytest.raises(BadRow, match="one of several consecutive tool results has an image"):
        encode_messages(row.messages, (picture(1),), chatml)


def test_a_template_without_tool_calls_refuses_them(tiny_vlm: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_vlm, tmp_path / "model")
    shutil.copy(TEMPLATES / "qwen2_5_vl.jinja", folder / "chat_template.jinja")
    row = read_chat({"messages": CALLS, "tools": TOOLS})
    assert isinstance(row, ConversationRow)
    with pytest.raises(BadRow, match=r"does not support tool calls; .* or set model\.chat=chatml"):
        encode_messages(row.messages, (), ChatEncoder(folder))
    with pytest.raises(BadRow, match="does not put tools into the system message"):
        encode_messages(row.messages, (), ChatEncoder(folder), 0, row.tools)
    read = encode_messages(row.messages, (), ChatEncoder(folder, chat="chatml"))
    text = ChatEncoder(folder).text(read.token_ids)
    assert '<tool_call>\n{"name": "look", "arguments": {"at": "é"}}\n</tool_call>' in text


@pytest.mark.parametrize("starts", [False, True])
def test_a_plain_prompt_is_the_bare_text_with_the_tokenizers_own_first_token(
    tiny_vlm: Path, tmp_path: Path, starts: bool
) -> None:
    from transformers import AutoTokenizer

    folder = shutil.copytree(tiny_vlm, tmp_path / "model")
    if starts:  # as Llama's tokenizer does
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        first = {"id": "<|im_start|>", "ids": [START], "tokens": ["<|im_start|>"]}
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 0}},
            ],
            "special_tokens": {"<|im_start|>": first},
        }
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    encoder, tokenizer = ChatEncoder(folder, chat="plain"), AutoTokenizer.from_pretrained(folder)
    talk = Conversation(encoder, "")
    prompt = talk.observe(Message(role="user", text="next number: 1, 2,"))
    assert list(prompt.token_ids) == tokenizer("next number: 1, 2,")["input_ids"]
    assert (prompt.token_ids[0] == START) == starts
    talk.answer(encoder.reply_ids(" 3"))
    again = talk.observe(Message(role="user", text="And then?"))
    assert again.token_ids[-len(encoder.text_ids("And then?")) :] == encoder.text_ids("And then?")
    system = Conversation(encoder, "Count.").observe(Message(role="user", text="1, 2,"))
    assert list(system.token_ids) == tokenizer("Count.\n\n1, 2,")["input_ids"]
