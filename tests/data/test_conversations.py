"""Rows for supervised learning and for preferences, as other trainers have them."""

import json

import pytest

from agentrl.data.conversations import ChatRows, read_chat, read_preference
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
IMPLICIT = {name: [*ANSWERS["prompt"], *ANSWERS[name]] for name in ("chosen", "rejected")}


def rows_of(tmp_path, parse, *rows, **settings):
    (tmp_path / "a.png").write_bytes(png(picture(20)))
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    return ChatRows(open_table(str(path)), path.name, parse, **settings)


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
        (read_chat, {"messages": MS_SWIFT["messages"]}, "1 <image> placeholders for 0 images"),
        (read_chat, MS_SWIFT | {"images": ["b.png"]}, r"b\.png: no such file"),
        (
            read_chat,
            {"messages": MS_SWIFT["messages"][:1], "images": ["a.png"]},
            "no assistant message to train on",
        ),
        (read_chat, {"messages": [{"role": "bot", "content": "hi"}]}, "the role 'bot'"),
        (read_preference, ANSWERS | {"rejected": ANSWERS["chosen"]}, "two different answers"),
        (read_preference, ANSWERS | {"chosen": None}, "not a list of messages"),
    ],
)
def test_bad_rows_are_named_and_refused_or_skipped(tmp_path, parse, row, words):
    good = MS_SWIFT if parse is read_chat else ANSWERS
    with pytest.raises(ConfigError, match=rf"1 of 2 rows are bad: line 2: .*{words}"):
        rows_of(tmp_path, parse, good, row)
    assert len(rows_of(tmp_path, parse, good, row, on_bad="skip")) == 1


def test_a_missing_column_is_named_with_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match=r"named chosen \(did you mean 'choosen'\?\). It has: pr"):
        rows_of(tmp_path, read_preference, {"prompt": "?", "choosen": "a", "rejected": "b"})
    with pytest.raises(ConfigError, match=r"named messages .*\(did you mean 'mesages'\?\)"):
        rows_of(tmp_path, read_chat, {"mesages": []})


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "it has no rows"), ("{", "none of its rows can be read: line 1: "), ("[]", "line 1: ")],
)
def test_a_file_without_readable_rows_is_refused(tmp_path, content, words):
    (tmp_path / "rows.jsonl").write_text(content)
    table = open_table(str(tmp_path / "rows.jsonl"))
    with pytest.raises(ConfigError, match=words):
        ChatRows(table, "rows.jsonl", read_chat)
