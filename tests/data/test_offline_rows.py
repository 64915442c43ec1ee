"""Rows for supervised learning and for preferences, as other trainers have them."""

import json

import pytest

from agentrl.data.offline_rows import OfflineRows, read_chat, read_preference
from agentrl.data.open_table import open_table
from agentrl.errors import ConfigError
from tests.data.rows import picture, png, write_jsonl

TRL = {
    "messages": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
        {"role": "user", "content": "And now?"},
        {"role": "assistant", "content": "Still."},
    ],
    "images": ["a.png"],
}
MS_SWIFT = {
    "messages": [
        {"role": "user", "content": "<image>What?"},
        {"role": "assistant", "content": "A cat."},
    ],
    "images": ["a.png"],
}
SHARE_GPT = {
    "conversations": [
        {"from": "human", "value": "<image>What?"},
        {"from": "gpt", "value": "A cat."},
    ],
    "image": "a.png",
}
ANSWERS = {
    "prompt": [{"role": "user", "content": "What?"}],
    "chosen": [{"role": "assistant", "content": "A cat."}],
    "rejected": [{"role": "assistant", "content": "A dog."}],
}
LLAMA_FACTORY_PAIR = {
    "conversations": [{"from": "human", "value": "<image>What?"}],
    "chosen": {"from": "gpt", "value": "A cat."},
    "rejected": {"from": "gpt", "value": "A dog."},
    "images": ["a.png"],
}
CALL = {"name": "look", "arguments": {"at": "cat", "times": 2}}
LEARNED = {
    "trl-text": ({"prompt": "What?", "completion": "A cat."}, ["What?"], ["A cat."]),
    "trl-messages": (
        {
            "prompt": [
                {"role": "system", "content": "Be short."},
                {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "?"}]},
                {"role": "assistant", "content": "A dog."},
                {"role": "user", "content": "Sure?"},
            ],
            "completion": [{"role": "assistant", "content": "A cat."}],
            "images": ["a.png"],
        },
        ["Be short.", "<image>?", "A dog.", "Sure?"],
        ["A cat."],
    ),
    "openrlhf": ({"input": "What?", "output": "A cat."}, ["What?"], ["A cat."]),
    "alpaca": (
        {"instruction": "Name it.", "input": "It purrs.", "output": "A cat.", "text": "Below is"},
        ["Name it.\nIt purrs."],
        ["A cat."],
    ),
    "alpaca-without-input": (
        {"instruction": "Name it.", "input": "", "output": "A cat.", "system": "Be short."},
        ["Be short.", "Name it."],
        ["A cat."],
    ),
    "llama-factory-history": (
        {"instruction": "And now?", "output": "A cat.", "history": [["What?", "A dog."]]},
        [],
        ["What?", "A dog.", "And now?", "A cat."],
    ),
    "r1-v": (
        {"image": "a.png", "problem": "?", "thinking": "<think>Fur.</think>", "solution": "A cat."},
        ["<image>?"],
        ["<think>Fur.</think>\n\nA cat."],
    ),
    "sharegpt-system": (
        SHARE_GPT | {"system": "Be short."},
        [],
        ["Be short.", "<image>What?", "A cat."],
    ),
}
IMPLICIT = {name: [*ANSWERS["prompt"], *ANSWERS[name]] for name in ("chosen", "rejected")}


def rows_of(tmp_path, parse, *rows, **settings):
    (tmp_path / "a.png").write_bytes(png(picture(20)))
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    return OfflineRows(open_table(str(path)), path.name, parse, **settings)


@pytest.mark.parametrize("row", [TRL, MS_SWIFT, SHARE_GPT], ids=["trl", "ms-swift", "sharegpt"])
@pytest.mark.parametrize("as_text", [False, True])
def test_conversations_of_other_trainers_are_read(tmp_path, row, as_text):
    name = next(iter(row))
    written = row | {name: json.dumps(row[name])} if as_text else row
    (read,) = rows_of(tmp_path, read_chat, written)
    read_texts = [(message.role, message.text) for message in read.messages]
    assert ("user", "<image>What?") in read_texts
    assert ("assistant", "A cat.") in read_texts
    assert [image[1, 1, 0] for image in read.images] == [20]


@pytest.mark.parametrize("origin", LEARNED)
def test_prompts_and_completions_of_other_trainers_are_read(tmp_path, origin):
    row, asked, answered = LEARNED[origin]
    (read,) = rows_of(tmp_path, read_chat, row)
    texts = [message.text for message in read.messages]
    assert texts[: read.prompt_length] == asked
    assert texts[read.prompt_length :] == answered
    assert len(read.images) == "".join(texts).count("<image>")


def test_columns_of_other_names_are_selected_by_keys(tmp_path):
    row = {"q": "What?", "a": {"text": "A cat."}, "pic": "a.png", "rule": "Be short."}
    keys = {"prompt": "q", "completion": "a.text", "images": "pic", "system": "rule"}
    (read,) = rows_of(tmp_path, read_chat, row, keys=keys)
    assert [message.text for message in read.messages] == ["Be short.", "<image>What?", "A cat."]
    with pytest.raises(ConfigError, match=r"keys\.completion=b: rows\.jsonl has no such column"):
        rows_of(tmp_path, read_chat, row, keys=keys | {"completion": "b"})
    with pytest.raises(ConfigError, match=r"keys\.answer: must be one of messages, system"):
        rows_of(tmp_path, read_chat, row, keys={"answer": "a"})


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "tool_calls": [{"type": "function", "function": CALL}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": CALL | {"arguments": json.dumps(CALL["arguments"])}}],
        },
        {"from": "function_call", "value": json.dumps(CALL)},
        {"from": "function_call", "value": json.dumps([CALL])},
    ],
    ids=["openai", "openai-text", "sharegpt", "sharegpt-list"],
)
def test_tool_calls_need_no_content(tmp_path, message):
    row = {
        "messages": [{"role": "user", "content": "What?"}, message],
        "tools": json.dumps([{"name": "look", "parameters": {"type": "object"}}]),
    }
    (read,) = rows_of(tmp_path, read_chat, row)
    (call,) = read.messages[1].tool_calls
    assert {"name": call.name, "arguments": call.arguments} == CALL
    assert read.messages[1].text == ""
    assert [tool["function"]["name"] for tool in read.tools] == ["look"]


def test_preferences_of_llama_factory_show_their_image(tmp_path):
    (read,) = rows_of(tmp_path, read_preference, LLAMA_FACTORY_PAIR | {"margin": 2})
    assert [message.text for message in read.prompt] == ["<image>What?"]
    assert [message.text for message in (*read.chosen, *read.rejected)] == ["A cat.", "A dog."]
    assert (len(read.images), read.margin) == (1, 2.0)
    alpaca = {"instruction": "Name it.", "input": "It purrs.", "chosen": "A cat."}
    (read,) = rows_of(tmp_path, read_preference, alpaca | {"rejected": "A dog."})
    assert [message.text for message in read.prompt] == ["Name it.\nIt purrs."]


def test_a_whole_conversation_beside_a_pair_is_no_prompt(tmp_path):
    row = IMPLICIT | {"prompt": "What?", "messages": IMPLICIT["chosen"]}
    (read,) = rows_of(tmp_path, read_preference, row)
    assert [message.text for message in read.prompt] == ["What?"]


@pytest.mark.parametrize(
    "row",
    [
        {"messages": IMPLICIT["chosen"], "kto_tag": True},
        {"prompt": "What?", "completion": "A cat.", "label": False},
    ],
    ids=["llama-factory", "trl"],
)
def test_single_rated_answers_are_refused_with_the_reason(tmp_path, row):
    with pytest.raises(ConfigError, match=r"column (kto_tag|label) rates single answers \(KTO\)"):
        rows_of(tmp_path, read_preference, row)


@pytest.mark.parametrize("row", [ANSWERS, IMPLICIT], ids=["explicit", "implicit"])
def test_preferences_are_read_with_or_without_a_prompt(tmp_path, row):
    (read,) = rows_of(tmp_path, read_preference, row)
    assert [message.text for message in read.prompt] == ["What?"]
    assert [message.text for message in read.chosen] == ["A cat."]
    assert [message.text for message in read.rejected] == ["A dog."]


def test_a_prompt_that_both_answers_repeat_is_read_once(tmp_path):
    (read,) = rows_of(tmp_path, read_preference, IMPLICIT | {"prompt": "What?"})
    assert [message.text for message in read.prompt] == ["What?"]
    assert [message.text for message in read.chosen] == ["A cat."]


def test_preferences_may_be_text_with_an_image(tmp_path):
    row = {"prompt": "What?", "chosen": "A cat.", "rejected": "A dog.", "images": ["a.png"]}
    (read,) = rows_of(tmp_path, read_preference, row)
    assert [(message.role, message.text) for message in read.prompt] == [("user", "<image>What?")]
    assert len(read.images) == len(read.prompt[0].images) == 1


@pytest.mark.parametrize(
    ("parse", "row", "words"),
    [
        (read_chat, {"messages": MS_SWIFT["messages"]}, "1 <image> placeholders but 0 images"),
        (read_chat, MS_SWIFT | {"images": ["b.png"]}, r"b\.png: no such file"),
        (
            read_chat,
            {"messages": MS_SWIFT["messages"][:1], "images": ["a.png"]},
            "no assistant message to train on",
        ),
        (read_chat, {"messages": [{"role": "bot", "content": "hi"}]}, "unknown role 'bot'"),
        (read_preference, ANSWERS | {"rejected": ANSWERS["chosen"]}, "two different answers"),
        (read_preference, ANSWERS | {"chosen": None}, "must be a list with at least one message"),
        (read_preference, ANSWERS | {"margin": "wide"}, "its margin must be a number, not 'wide'"),
        (
            read_preference,
            {"chosen": "A cat.", "rejected": "A dog.", "images": ["a.png"]},
            "1 images, but no user message to show them in",
        ),
        (read_chat, TRL | {"system": "Be long."}, "the system message in its messages differs"),
        (read_chat, {"prompt": "", "completion": "A cat."}, "its prompt is empty"),
        (read_chat, {"prompt": "What?", "completion": "A cat.", "history": ["What?"]}, "history"),
        (
            read_chat,
            {
                "messages": [
                    {"role": "user", "content": "?"},
                    {"from": "function_call", "value": "{"},
                ]
            },
            "a function_call is not valid JSON",
        ),
    ],
)
def test_bad_rows_are_named_and_refused_or_skipped(tmp_path, parse, row, words):
    good = MS_SWIFT if parse is read_chat else ANSWERS
    with pytest.raises(ConfigError, match=rf"1 of 2 rows are bad: line 2: .*{words}"):
        rows_of(tmp_path, parse, good, row)
    assert len(rows_of(tmp_path, parse, good, row, on_bad="skip")) == 1


def test_a_missing_column_is_named_with_the_nearest(tmp_path):
    with pytest.raises(
        ConfigError, match=r"rejected \(did you mean 'choosen'\?\); .*The data has: pr"
    ):
        rows_of(tmp_path, read_preference, {"prompt": "?", "choosen": "a", "rejected": "b"})
    with pytest.raises(ConfigError, match=r"named messages .*\(did you mean 'mesages'\?\)"):
        rows_of(tmp_path, read_chat, {"mesages": []})


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "has no rows"), ("{", "none of its rows can be read: line 1: "), ("[]", "line 1: ")],
)
def test_a_file_without_readable_rows_is_refused(tmp_path, content, words):
    (tmp_path / "rows.jsonl").write_text(content)
    table = open_table(str(tmp_path / "rows.jsonl"))
    with pytest.raises(ConfigError, match=words):
        OfflineRows(table, "rows.jsonl", read_chat)
