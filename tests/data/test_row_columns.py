"""Which columns make a question: messages before text, and no column is lost without a word."""

import base64
import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from agentrl.data.open_table import open_table
from agentrl.data.question_dataset import Dataset
from agentrl.data.question_reader import PromptRows
from agentrl.data.tables import ColumnTable
from agentrl.errors import ConfigError
from tests.data.rows import picture, png, write_jsonl

SYSTEM = "Think in <think> </think>, answer in <answer> </answer>.\n"
LMM_R1 = {
    "question": "Which number should be written in place of the question mark?\n",
    "answer": r"$\boxed{60}$",
    "message": json.dumps(
        [
            {"role": "system", "content": SYSTEM},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Which number should be written?\n"},
                    {"type": "image", "image": "a.png"},
                ],
            },
        ]
    ),
}
CHAT = [{"role": "user", "content": "<image>How many?"}]
SHARE_GPT = {
    "conversations": [
        {"from": "human", "value": "<image>Who?"},
        {"from": "gpt", "value": "Bayern"},
    ],
    "system": "Answer in a word.",
    "images": ["a.png"],
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.png").write_bytes(png(picture(20)))
    return tmp_path


def opened(folder, *rows, **kwargs):
    return Dataset(open_table(str(write_jsonl(folder / "rows.jsonl", rows))), "rows", **kwargs)


def asked(folder, row, **kwargs):
    task = opened(folder, row, **kwargs).question(0)
    return task.system, task.problem, len(task.images)


def test_messages_win_over_the_text_of_an_lmm_r1_row(folder):
    shown = "Which number should be written?\n<image>"
    assert asked(folder, LMM_R1) == (SYSTEM, shown, 1)
    (system, row) = PromptRows(open_table(str(folder / "rows.jsonl")), "rows").load(0)
    assert (system, row.messages[0].text, len(row.images)) == (SYSTEM, shown, 1)
    assert asked(folder, LMM_R1, keys={"problem": "question"})[:2] == (None, LMM_R1["question"])


def test_a_missing_image_of_messages_is_found_when_the_data_is_examined(folder):
    (folder / "a.png").unlink()
    with pytest.raises(ConfigError, match=r"1 of 1 rows are bad: line 1: a\.png: no such file"):
        opened(folder, LMM_R1)


def test_messages_win_over_a_text_prompt(folder):
    row = {"prompt": "How many?", "messages": CHAT, "images": ["a.png"], "answer": "3"}
    assert asked(folder, row) == ("", "<image>How many?", 1)
    with pytest.raises(ConfigError, match=r"keys\.problem=prompt.*keys\.messages=messages"):
        asked(folder, row, keys={"problem": "prompt", "messages": "messages"})


def test_a_column_of_text_named_message_is_no_conversation(folder):
    row = {"problem": "How many?", "message": "hi", "answer": "3"}
    assert asked(folder, row) == (None, "How many?", 0)


def test_a_system_column_is_the_system_message(folder):
    assert asked(folder, SHARE_GPT) == ("Answer in a word.", "<image>Who?", 1)
    assert opened(folder, SHARE_GPT).question(0).answer == "Bayern"
    text = {"problem": "Who?", "system": "Answer in a word.", "answer": "Bayern"}
    assert asked(folder, text)[:2] == ("Answer in a word.", "Who?")
    assert asked(folder, text, keys={"system": None})[0] is None
    assert asked(folder, {**text, "rules": "Be brief."}, keys={"system": "rules"})[0] == "Be brief."
    assert asked(folder, {**text, "system": ""})[:2] == ("", "Who?")
    assert asked(folder, {**text, "system": None})[:2] == (None, "Who?")
    templated = asked(folder, text, template="{{ system }} {{ content }}")
    assert templated[:2] == ("", "Answer in a word. Who?")
    (system, row) = PromptRows(open_table(str(folder / "rows.jsonl")), "rows").load(0)
    assert (system, row.messages[0].text) == ("Answer in a word.", "Who?")


def test_two_different_system_messages_are_a_bad_row(folder):
    twice = [{"role": "system", "content": "Be short."}, *CHAT]
    row = {"messages": twice, "system": "Be long.", "images": ["a.png"], "answer": "3"}
    with pytest.raises(ConfigError, match="a system message both in its messages and in col"):
        opened(folder, row)
    assert asked(folder, {**row, "system": "Be short."})[0] == "Be short."


DATA_URI = "data:image/png;base64," + base64.b64encode(png()).decode()


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("img", "a.png"),
        ("where", ["a.png", "a.png"]),
        ("screen", {"bytes": None, "path": "a.png"}),
        ("pic", DATA_URI),
        ("shot", base64.b64encode(png(picture(height=60, width=60))).decode()),
    ],
)
@pytest.mark.parametrize("has_images", [False, True])
def test_a_column_of_images_that_is_not_used_is_refused(folder, column, cell, has_images):
    row = {"problem": "?", "answer": "1", "id": 7, column: cell}
    row |= {"image": "a.png"} if has_images else {}
    with pytest.raises(
        ConfigError, match=rf"column {column} contains images.*keys=\{{images: {column}\}}"
    ):
        opened(folder, row)
    assert asked(folder, row, keys={"images": column})[2] == (2 if column == "where" else 1)
    chosen = {"images": "image" if has_images else None}
    assert asked(folder, row, keys=chosen)[2] == int(has_images)


def test_images_and_other_columns_may_be_arrays():
    row = {"problem": "?", "answer": "1", "images": picture(), "bounds": np.arange(4)}
    assert [image.shape for image in Dataset(Rows([row]), "rows").question(0).images] == [(6, 8, 3)]
    with pytest.raises(ConfigError, match="column shot contains images"):
        Dataset(Rows([{**row, "shot": PIL.Image.fromarray(picture())}]), "rows")


class Rows(ColumnTable):
    """A table in memory."""

    def __init__(self, rows):
        super().__init__(rows, list(rows[0]), Path())


@pytest.mark.parametrize("written", [False, True])
def test_a_column_of_messages_that_is_not_used_is_refused(folder, written):
    chat = [{"role": "user", "content": "How many circles?"}]
    row = {"problem": "How many?", "talk": json.dumps(chat) if written else chat, "answer": "3"}
    with pytest.raises(
        ConfigError, match=r"column talk contains messages.*keys=\{messages: talk\}"
    ):
        opened(folder, row)
    with pytest.raises(ConfigError, match=r"column talk contains messages"):
        PromptRows(open_table(str(folder / "rows.jsonl")), "rows")
    assert asked(folder, row, keys={"messages": "talk"})[1] == "How many circles?"
    assert asked(folder, row, keys={"problem": "problem"})[1] == "How many?"


def test_plain_columns_are_left_alone(folder):
    row = {
        "problem": "?", "answer": "1", "id": 7, "digest": "a" * 64, "level": None, "url": "x.html",
        "image_type": "['Diagrams']", "extra_info": {"index": 1}, "tools": [{"name": "zoom"}],
        "note": "[1, 2", "score": 0.5,
    }  # fmt: skip
    assert asked(folder, row) == (None, "?", 0)


@pytest.mark.parametrize(("one", "file"), [("video", "a.mp4"), ("audio", "a.wav")])
def test_videos_and_sound_are_refused_with_the_reason(folder, one, file):
    media = f"{one}s"
    row = {"problem": f"<{one}>What?", "answer": "1", media: [file]}
    for bad in (row, {**row, "problem": "What?"}, {**row, media: []}):
        with pytest.raises(
            ConfigError, match=rf"line 1: it contains (a )?{one} .*into an image or text column"
        ):
            opened(folder, bad)
        with pytest.raises(ConfigError, match=rf"it contains (a )?{one} "):
            PromptRows(open_table(str(folder / "rows.jsonl")), "rows")
    assert asked(folder, {**row, "problem": "What?", media: []})[1] == "What?"
    row |= {"problem": f"What does the tag <{one}> mean?"}
    assert asked(folder, row, keys={media: None})[1] == row["problem"]


def test_a_video_in_a_column_of_another_name_is_refused(folder):
    row = {"problem": "What?", "answer": "1", "clip": "a.mp4"}
    with pytest.raises(ConfigError, match=r"column clip contains videos.*keys=\{videos: null\}"):
        opened(folder, row)
    assert asked(folder, row, keys={"videos": None})[1] == "What?"


def test_an_alpaca_row_keeps_its_instruction(folder):
    row = {"instruction": "Count them.", "input": "a, b, c", "output": "3", "system": "Be brief."}
    assert asked(folder, row) == ("Be brief.", "Count them.\na, b, c", 0)
    assert opened(folder, row).question(0).answer == "3"
    assert asked(folder, {**row, "input": ""})[1] == "Count them."
    with pytest.raises(
        ConfigError, match=r"its history must be a list of \[question, reply\], not "
    ):
        opened(folder, {**row, "history": ["Hi", "Hello"]})
    (_, first) = PromptRows(open_table(str(write_jsonl(folder / "b.jsonl", [row]))), "b").load(0)
    assert first.messages[0].text == "Count them.\na, b, c"


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("picture", "a.png", "column picture contains images, but the questions do not use it"),
        ("images", ["a.png"], "keys={images: images}, or ignore it with keys={images: image}"),
        ("chat", [{"role": "user", "content": "Why?"}], "column chat contains messages"),
        ("clip", "a.mp4", "column clip contains videos, which cannot be shown to a"),
    ],
)
@pytest.mark.parametrize("is_there", [False, True])
def test_a_column_that_only_later_rows_fill_is_not_lost(folder, column, value, words, is_there):
    empty = {column: None} if is_there else {}
    rows = [{"question": f"How many? {n}", "answer": "1", "image": "a.png"} for n in range(30)]
    rows = [row | empty for row in rows] + [{"question": "Why?", "answer": "2", column: value}]
    with pytest.raises(ConfigError, match="1 of 31 rows are bad: line 31: ") as caught:
        opened(folder, *rows)
    assert words in str(caught.value)
    content = "problem" if column == "chat" else "videos" if column == "clip" else "images"
    keys = {content: {"problem": "question", "images": "image"}.get(content)}
    assert len(opened(folder, *rows, keys=keys)) == 31


def test_a_prompt_may_be_messages_in_json(folder):
    row = {"prompt": json.dumps([{"role": "user", "content": "How many?"}]), "answer": "1"}
    assert asked(folder, row) == ("", "How many?", 0)
    assert asked(folder, row | {"prompt": "[1, 2] is what?"}) == (None, "[1, 2] is what?", 0)


@pytest.mark.parametrize(
    ("name", "coding", "words"),
    [
        ("rows.jsonl", "utf-16", "is UTF-16 text; convert the file to UTF-8"),
        ("rows.csv", "utf-16", "must be UTF-8 text; convert the file"),
        ("rows.csv", "latin1", "must be UTF-8 text; convert the file"),
        ("rows.jsonl", "utf-8-sig", None),
        ("rows.json", "utf-16", None),
    ],
)
def test_a_file_in_another_coding_is_an_error_that_says_so(tmp_path, name, coding, words):
    row = json.dumps({"question": "Café?", "answer": "1"}, ensure_ascii=False)
    text = {"rows.csv": "question,answer\nCafé?,1\n", "rows.json": f"[{row}]"}.get(name, row)
    (tmp_path / name).write_bytes(text.encode(coding))
    if words is None:
        assert Dataset(open_table(str(tmp_path / name)), name).question(0).problem == "Café?"
    else:
        with pytest.raises(ConfigError, match=words):
            open_table(str(tmp_path / name))
