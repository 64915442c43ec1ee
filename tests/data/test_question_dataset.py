import base64
import json
import shutil
import threading

import numpy as np
import PIL.EpsImagePlugin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.data import image_loading
from agentrl.data.open_table import Selection, open_table
from agentrl.data.question_dataset import Dataset
from agentrl.data.seed_to_row import row_of
from agentrl.data.tables import BadRow
from agentrl.errors import ConfigError
from tests.data.rows import POSTSCRIPT, jpeg, picture, png, sums, write_csv, write_jsonl


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(image_loading, "FOLDER", tmp_path / "cache")


def opened(path, split=None, **settings):
    return Dataset(
        open_table(str(path), Selection(split=split)), path.name, **{"shuffle": None} | settings
    )


def all_of(data):
    return [data.question(seed) for seed in range(len(data))]


# --- formats ------------------------------------------------------------------------------


def write_parquet(path, rows):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def write_json(path, rows):
    path.write_text(json.dumps(rows))
    return path


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.jsonl", write_jsonl),
        ("a.json", write_json),
        ("a.csv", write_csv),
        ("a.parquet", write_parquet),
    ],
)
def test_every_format_gives_the_same_questions(tmp_path, name, write):
    data = opened(write(tmp_path / name, sums(5)))
    assert [(t.problem, t.answer) for t in all_of(data)] == [
        (f"What is {n} + 1?", str(n + 1)) for n in range(5)
    ]


def test_parquet_images_may_be_bytes_or_in_hugging_face_format(tmp_path):
    rows = [
        {"problem": "?", "answer": "a", "images": [{"bytes": png(picture(n)), "path": None}] * 2}
        for n in (10, 20)
    ]
    data = opened(write_parquet(tmp_path / "a.parquet", rows))
    assert [len(t.images) for t in all_of(data)] == [2, 2]
    assert data.question(1).images[0][1, 1].tolist() == [20, 20, 20]
    plain = [{"problem": "?", "answer": "a", "image": png(picture(30))}]
    data = opened(write_parquet(tmp_path / "b.parquet", plain))
    assert data.question(0).images[0][1, 1, 0] == 30


@pytest.fixture
def hugging_face(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = {
        "question": [f"q{n}" for n in range(6)],
        "label": [f"a{n}" for n in range(6)],
        "image": [{"bytes": png(picture(n)), "path": None} for n in range(6)],
    }
    features = datasets.Features(
        question=datasets.Value("string"), label=datasets.Value("string"), image=datasets.Image()
    )
    whole = datasets.Dataset.from_dict(rows, features=features)
    parts = datasets.DatasetDict(train=whole.select(range(4)), test=whole.select(range(4, 6)))
    parts.save_to_disk(str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_hugging_face_data_set_is_read_with_its_splits_and_images(hugging_face):
    data = opened(hugging_face, "test")
    assert [(t.problem, t.answer) for t in all_of(data)] == [
        ("<image>q4", "a4"),
        ("<image>q5", "a5"),
    ]
    assert data.question(0).images[0][1, 1, 0] == 4
    with pytest.raises(ConfigError, match="has train, test; choose one"):
        opened(hugging_face)
    with pytest.raises(ConfigError, match="split=eval"):
        opened(hugging_face, "eval")


def test_a_folder_is_read_by_the_datasets_library(tmp_path):
    pytest.importorskip("datasets")
    (tmp_path / "set").mkdir()
    write_jsonl(tmp_path / "set" / "train.jsonl", sums(3))
    assert len(opened(tmp_path / "set", "train")) == 3


def test_a_broken_image_of_a_hugging_face_data_set_is_reported_by_row(tmp_path):
    datasets = pytest.importorskip("datasets")
    broken = [{"bytes": png(), "path": None}, {"bytes": b"broken", "path": None}]
    features = datasets.Features(
        problem=datasets.Value("string"),
        answer=datasets.Value("string"),
        images=datasets.List(datasets.Image()),
    )
    datasets.Dataset.from_dict(
        {"problem": ["a", "b"], "answer": ["1", "2"], "images": [[image] for image in broken]},
        features=features,
    ).save_to_disk(str(tmp_path / "kept"))
    with pytest.raises(ConfigError, match=r"1 of 2 rows are bad: row 2: .*not recognized"):
        opened(tmp_path / "kept")


def test_a_postscript_image_in_hugging_face_messages_is_not_executed(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    started = []
    monkeypatch.setattr(PIL.EpsImagePlugin, "Ghostscript", lambda *a, **k: started.append(a))
    part = {"type": "image", "image": {"bytes": POSTSCRIPT, "path": None}}
    text = datasets.Value("string")
    content = datasets.List({"type": text, "image": datasets.Image()})
    datasets.Dataset.from_dict(
        {"messages": [[{"role": "user", "content": [part]}]], "answer": ["1"]},
        features=datasets.Features(
            messages=datasets.List({"role": text, "content": content}), answer=text
        ),
    ).save_to_disk(str(tmp_path / "kept"))
    with pytest.raises(ConfigError, match=r"1 of 1 rows are bad: row 1: .*not recognized"):
        opened(tmp_path / "kept")
    assert not started


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", "", "must be a folder, or end in"),
        ("a.jsonl", "", "has no rows"),
        ("a.json", "{}", "must contain a list"),
        ("a.json", "[", "JSON"),
        ("a.csv", "\xff", "no rows|cannot be read"),
        ("a.parquet", "PAR1", "cannot be read"),
    ],
)
def test_a_file_without_a_table_is_a_config_error(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=words):
        opened(tmp_path / name)


def test_a_missing_file_is_not_taken_for_a_hub_id(tmp_path):
    for name in ("./nothing.jsonl", "nothing.jsonl", str(tmp_path / "nothing"), "~/nothing/at"):
        with pytest.raises(ConfigError, match="no such file"):
            open_table(name)


# --- columns, templates, messages ---------------------------------------------------------


def test_columns_may_have_any_name(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"q": "1 + 1?", "a": 2, "hint": "even"}])
    data = opened(path, keys={"problem": "q", "answer": "a"}, template="{{ problem }} ({{ hint }})")
    assert (data.question(0).problem, data.question(0).answer) == ("1 + 1? (even)", "2")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"keys": {"problem": "questoin"}}, r"no such column \(did you mean 'question'\?\)"),
        ({"keys": {"problm": "question"}}, "must be one of problem, answer"),
        ({}, "no column is named reward_model.ground_truth, answer, "),
        ({"keys": {"answer": "right"}, "template": "{{ problem"}, "template="),
        ({"keys": {"answer": "right"}, "template": "{{ nothing }}"}, "1 of 1 rows are bad"),
        ({"keys": {"answer": "right"}, "on_bad": "ignore"}, "must be refuse or skip"),
    ],
)
def test_a_wrong_key_or_template_is_a_config_error(tmp_path, settings, words):
    path = write_jsonl(tmp_path / "a.jsonl", [{"question": "?", "right": "!"}])
    with pytest.raises(ConfigError, match=words):
        opened(path, **{"grade": "exact"} | settings)


def test_a_template_is_sandboxed(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", sums(1))
    with pytest.raises(ConfigError, match="rows are bad"):
        opened(path, template="{{ problem.__class__.__mro__[1].__subclasses__() }}")


CONVERSATION = [
    {"role": "system", "content": "Be short."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Here "},
            {"type": "image", "image": "a.png"},
            {"type": "text", "text": " and there "},
            {
                "type": "image_url",
                "image_url": {"url": "data:image/png;base64," + base64.b64encode(png()).decode()},
            },
        ],
    },
    {"role": "assistant", "content": "Nothing."},
]


@pytest.mark.parametrize("name", ["messages", "message"])
@pytest.mark.parametrize("written", [False, True])
def test_messages_keep_the_positions_of_their_images(tmp_path, name, written):
    (tmp_path / "a.png").write_bytes(png())
    cell = json.dumps(CONVERSATION) if written else CONVERSATION
    task = opened(write_jsonl(tmp_path / "a.jsonl", [{name: cell}])).question(0)
    assert (task.system, task.problem) == ("Be short.", "Here <image> and there <image>")
    assert task.answer == "Nothing."
    assert [image.shape for image in task.images] == [(6, 8, 3)] * 2


def test_images_of_messages_may_be_in_a_column(tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    said = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what?"}]}]
    row = {"messages": said, "images": ["a.png"], "answer": "it"}
    task = opened(write_jsonl(tmp_path / "a.jsonl", [row])).question(0)
    assert (task.problem, len(task.images), task.answer) == ("<image>what?", 1, "it")


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ("[{", "JSON"),
        ([], "must be a list with at least one message"),
        (["hello"], "must be an object with a role, not str"),
        ([{"role": "user", "content": 3}], "must be text or parts, not int"),
        ([{"role": "user", "content": [{"type": "video"}]}], "type 'video'"),
        (
            [{"role": "system", "content": "a"}, {"role": "assistant", "content": "b"}],
            "messages have the roles",
        ),
        ([{"role": "user", "content": "a"}], "no answer"),
    ],
)
def test_messages_without_a_question_are_bad_rows(tmp_path, messages, words):
    path = write_jsonl(tmp_path / "a.jsonl", [{"messages": messages}])
    with pytest.raises(ConfigError, match=words):
        opened(path, grade="exact")


def test_options_make_a_multiple_choice_question(tmp_path):
    rows = [
        {"problem": "?", "options": ["red", "blue"], "answer": "B"},
        {"problem": "?", "options": '["red", "blue"]', "answer": 1},
    ]
    first, second = all_of(opened(write_jsonl(tmp_path / "a.jsonl", rows)))
    assert first.options == second.options == ("red", "blue")
    assert (first.answer, second.answer) == ("B", "blue")


def test_options_may_be_a_mapping_from_letters(tmp_path):
    held = [
        {"B": "two", "A": "one", "C": "three"},
        {"a": "one", "b": "two", "c": "three", "d": None},
        '{"A": "one", "B": "two", "C": "three"}',
    ]
    rows = [{"problem": "?", "options": options, "answer": "B"} for options in held]
    data = opened(write_jsonl(tmp_path / "a.jsonl", rows), grade="choice")
    assert [task.options for task in all_of(data)] == [("one", "two", "three")] * 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("A. one\nB. two", r"its options must be a list or .*, not 'A. one\\nB. two'"),
        (5, "its options must be a list or .*, not '5'"),
        ({"A": "one", "C": "three"}, "its options must have the keys A, B, ..., not A, C"),
        (
            {"text": ["one"], "label": ["A"]},
            "its options must have the keys A, B, ..., not text, label",
        ),
        ('{"A"', "are not valid JSON"),
        ([{"A": "one"}], "an option must be text, not dict"),
        (["one", None], "an option is missing"),
    ],
)
def test_invalid_options_are_config_errors(tmp_path, options, words):
    row = {"problem": "?", "options": options, "answer": "A"}
    with pytest.raises(ConfigError, match=words):
        opened(write_jsonl(tmp_path / "a.jsonl", [row]))


@pytest.mark.parametrize(
    ("options", "answer", "accepted"),
    [
        (["one", "two"], 1, "two"),
        (["one", "two"], "1", "two"),
        (["one", "two"], " 1.0", "two"),
        (["one", "two"], 1.0, "two"),
        (["1", "2", "3"], "2", "2"),
        (["1.0", "2.0"], 1.0, "1.0"),
        ([0, 1, 2], 1.0, "1"),
        (["one", "two"], "1.5", "1.5"),
        ([], "1", "1"),
    ],
)
def test_an_option_index_may_have_any_numeric_type(tmp_path, options, answer, accepted):
    row = {"problem": "?", "options": options, "answer": answer}
    task = opened(write_jsonl(tmp_path / "a.jsonl", [row])).question(0)
    assert task.accepted == (accepted,)


@pytest.mark.parametrize("answer", ["2", 2.0, "-1"])
def test_an_index_out_of_range_is_a_config_error(tmp_path, answer):
    row = {"problem": "?", "options": ["one", "two"], "answer": answer}
    with pytest.raises(ConfigError, match="is not an index of its 2 options"):
        opened(write_jsonl(tmp_path / "a.jsonl", [row]))


def test_an_option_index_works_in_csv_and_json(tmp_path):
    rows = [{"problem": "?", "options": '["one", "two"]', "answer": 1}]
    for path in (write_csv(tmp_path / "a.csv", rows), write_jsonl(tmp_path / "a.jsonl", rows)):
        assert opened(path, grade="choice").question(0).accepted == ("two",)


def test_a_boolean_is_not_an_option_index(tmp_path):
    row = {"problem": "?", "options": ["false", "true"], "answer": False}
    other = {"problem": "?", "options": ["true", "false"], "answer": False}
    data = opened(write_jsonl(tmp_path / "a.jsonl", [row, other]))
    assert [task.accepted for task in all_of(data)] == [("false",), ("false",)]


@pytest.mark.parametrize("answer", [2, [2]])
def test_a_number_that_is_an_index_and_another_options_text_is_refused(tmp_path, answer):
    row = {"problem": "?", "options": [1, 2, 3, 5], "answer": answer}
    with pytest.raises(
        ConfigError, match="answer 2 is both the index of one option and the text of"
    ):
        opened(write_jsonl(tmp_path / "a.jsonl", [row]))
    row["options"] = [0, 1, 2, 3]
    assert opened(write_jsonl(tmp_path / "b.jsonl", [row])).question(0).accepted == ("2",)


def test_an_integer_that_is_not_an_index_is_refused(tmp_path):
    row = {"problem": "?", "options": ["red", "blue"], "answer": 2}
    with pytest.raises(ConfigError, match=r"answer 2 is not an index of its 2 options \(from 0\)"):
        opened(write_jsonl(tmp_path / "a.jsonl", [row]))


@pytest.mark.parametrize(
    "options", [["an", "a", "the"], ["b", "a"], ["the", "(a)"], ["C.", "x", "y"]]
)
def test_an_option_that_is_the_letter_of_another_is_refused(tmp_path, options):
    row = {"problem": "?", "options": options, "answer": "B"}
    with pytest.raises(
        ConfigError, match=r"its option '.*' is also the letter of a different option"
    ):
        opened(write_jsonl(tmp_path / "a.jsonl", [row]), grade="choice")


@pytest.mark.parametrize("options", [["a", "b"], ["x", "y"], ["A. red", "B. blue"], ["an", "the"]])
def test_an_option_that_is_its_own_or_no_options_letter_is_kept(tmp_path, options):
    row = {"problem": "?", "options": options, "answer": "B"}
    data = opened(write_jsonl(tmp_path / "a.jsonl", [row]), grade="choice")
    assert data.question(0).options == tuple(options)


# --- bad data -----------------------------------------------------------------------------


BAD = [
    (
        {"problem": "<image> <image>?", "answer": "1", "images": ["a.png"]},
        "has 2 <image> placeholders",
    ),
    ({"problem": "?", "answer": "1", "images": ["gone.png"]}, "no such file"),
    ({"problem": "?", "answer": "1", "images": ["../a.png"]}, "outside"),
    ({"problem": "?", "answer": None}, "no answer"),
    ({"problem": "?", "answer": "  "}, "no answer"),
    ({"problem": None, "answer": "1"}, "problem is missing"),
    ({"problem": " ", "answer": "1"}, "question is empty"),
    ({"answer": "1"}, "problem is missing"),
    ({"problem": "\ud800", "answer": "1"}, "not valid Unicode"),
]


def test_bad_rows_are_reported_and_refused_or_skipped(tmp_path, caplog):
    good = {"problem": "?", "answer": "1", "images": ["a.png"]}
    (tmp_path / "a.png").write_bytes(png())
    path = write_jsonl(tmp_path / "a.jsonl", [good, *(row for row, _ in BAD), good])
    with path.open("a") as file:
        file.write("{broken\n[1]\n")
    with pytest.raises(ConfigError) as refused:
        opened(path)
    said = str(refused.value)
    assert "11 of 13 rows are bad: line 2: it has 2 <image> placeholders" in said
    assert "and 6 more" in said
    assert "on_bad=skip" in said
    data = opened(path, on_bad="skip")
    assert len(data) == 2
    assert "They are skipped" in caplog.text
    for (_, words), why in zip(BAD, data.bad.values(), strict=False):
        assert words in why
    assert data.bad["line 12"].startswith("invalid JSON")
    assert data.bad["line 13"] == "must be an object, not list"


def test_bad_rows_are_reported_once_for_all_parts(tmp_path, caplog):
    rows = [{"problem": f"q{n}", "answer": "1"} for n in range(10)]
    path = write_jsonl(tmp_path / "a.jsonl", [*rows, {"problem": " ", "answer": "1"}])
    parts = [opened(path, on_bad="skip", part=(split, 0.5)) for split in ("train", "eval")]
    assert sum(map(len, parts)) == 10
    assert all(len(part.bad) == 1 for part in parts)
    assert caplog.text.count("1 of 11 rows are bad") == 1


def test_a_fraction_that_leaves_a_part_empty_is_a_config_error(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"problem": "?", "answer": "1"}])
    with pytest.raises(ConfigError, match=r"none of the 1 rows of a.jsonl are left for eval"):
        opened(path, part=("eval", 0.001))


def test_data_without_a_valid_row_is_refused_even_with_skip(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"problem": "?", "answer": None}] * 3)
    with pytest.raises(ConfigError, match="3 of 3 rows are bad"):
        opened(path, on_bad="skip")


def folder_of_pictures(folder, count, corrupt):
    whole = jpeg(side=16)
    (folder / "images").mkdir()
    for n in range(count):
        (folder / "images" / f"{n}.jpg").write_bytes(corrupt.get(n, whole))
    rows = [{"problem": "?", "answer": n, "image": f"images/{n}.jpg"} for n in range(count)]
    return write_jsonl(folder / "a.jsonl", rows)


def test_three_corrupt_images_among_two_thousand_are_reported(tmp_path):
    corrupt = {17: jpeg()[:-400], 842: b"", 1999: b"GIF89a nothing"}
    path = folder_of_pictures(tmp_path, 2000, corrupt)
    with pytest.raises(ConfigError) as refused:
        opened(path)
    said = str(refused.value)
    assert "3 of 2000 rows are bad: line 18: 'images/17.jpg'" in said
    assert "line 843: " in said
    assert "line 2000: " in said
    assert len(opened(path, on_bad="skip")) == 1997


def test_unchanged_images_are_not_decoded_again(tmp_path, monkeypatch):
    monkeypatch.setattr(image_loading, "_FEW", 1)
    path = folder_of_pictures(tmp_path, 10, {3: b""})
    decoded = []
    load = image_loading.load_image
    monkeypatch.setattr(image_loading, "load_image", lambda *a: decoded.append(a) or load(*a))
    counts = []
    for _ in range(2):
        assert len(opened(path, on_bad="skip")) == 9
        counts.append(len(decoded))
    (tmp_path / "images" / "3.jpg").write_bytes(jpeg(side=16))
    assert len(opened(path, on_bad="skip")) == 10
    assert [*counts, len(decoded)] == [10, 10, 20]


def test_siblings_share_one_read_only_image(tmp_path):
    (tmp_path / "a.png").write_bytes(png(picture(1)))
    rows = [{"problem": "?", "answer": "a", "images": ["a.png", "a.png"]}]
    data = opened(write_jsonl(tmp_path / "a.jsonl", rows))
    first, second = data.question(0), data.question(0)
    assert [id(image) for image in first.images] == [id(image) for image in second.images]
    with pytest.raises(ValueError, match="read-only"):
        first.images[0][0, 0] = 0


def test_an_image_that_disappears_after_the_check_is_an_error(tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    row = {"problem": "?", "answer": "1", "images": ["a.png"]}
    data = opened(write_jsonl(tmp_path / "a.jsonl", [row]))
    (tmp_path / "a.png").unlink()
    with pytest.raises(BadRow, match=r"a.jsonl line 1: a.png: no such file"):
        data.question(0)


def test_a_row_of_a_json_list_is_reported_by_number(tmp_path):
    path = write_json(tmp_path / "a.json", [*sums(2), 3])
    with pytest.raises(ConfigError, match="1 of 3 rows are bad: row 3: must be an object, not int"):
        opened(path)
    assert opened(path, on_bad="skip").question(0).name == "a.json row 1"


@pytest.mark.parametrize("sign", [";", "\t"])
def test_a_csv_with_another_delimiter_is_a_config_error(tmp_path, sign):
    (tmp_path / "a.csv").write_text(f"problem{sign}answer\nq{sign}1\n")
    with pytest.raises(ConfigError, match="separate columns by commas"):
        opened(tmp_path / "a.csv")


def test_a_csv_row_with_missing_cells_is_bad(tmp_path):
    (tmp_path / "a.csv").write_text("problem,answer\nq,1\nonly one\n")
    with pytest.raises(ConfigError, match=r"1 of 2 rows are bad: line 3: it has 1 cells"):
        opened(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        (["problem,answer", "q0,1", 'q1,"2', "q2,3", "q3,4"], 3),
        (["problem,answer", '"q0', 'and more",1', '"q1,2', "q2,3"], 4),
        (["problem,answer", 'q0,"2', "q1,3", 'q2,"4"'], 2),
        (['"problem,answer', "q0,1"], 1),
    ],
)
@pytest.mark.parametrize("on_bad", ["refuse", "skip"])
def test_an_unclosed_quote_is_an_error_at_its_row(tmp_path, lines, first, on_bad):
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(
        ConfigError, match=f"the row that starts at line {first} is invalid: .*quote"
    ):
        opened(tmp_path / "a.csv", on_bad=on_bad)


def test_a_row_of_several_lines_is_reported_by_its_first_line(tmp_path):
    (tmp_path / "a.csv").write_text('problem,answer\n\n"a ""big""\nquestion",1\nq,2\n')
    asked = all_of(opened(tmp_path / "a.csv"))
    assert [(t.name, t.problem) for t in asked] == [
        ("a.csv line 3", 'a "big"\nquestion'),
        ("a.csv line 5", "q"),
    ]


def test_a_duplicate_column_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("question,question,answer\nreal,other,1\n")
    with pytest.raises(ConfigError, match="two columns are named 'question'"):
        opened(tmp_path / "a.csv")


@pytest.mark.parametrize(("name", "write"), [("a.json", write_json), ("a.parquet", write_parquet)])
def test_rows_are_counted_from_one_in_every_format(tmp_path, name, write):
    assert opened(write(tmp_path / name, sums(2))).question(1).name == f"{name} row 2"


# --- order and splits ---------------------------------------------------------------------


@given(st.integers(1, 50), st.integers(0, 99), st.integers(0, 20), st.integers(0, 3))
def test_consecutive_seeds_visit_every_row_once_an_epoch(count, block, epoch, shuffle):
    first = block * 1_000_000 + epoch * count
    rows = [row_of(seed, count, shuffle) for seed in range(first, first + count)]
    assert sorted(rows) == list(range(count))


def test_the_order_differs_per_epoch_and_shuffle_and_is_reproducible():
    def order(first, shuffle=0):
        return [row_of(first + n, 100, shuffle) for n in range(100)]

    orders = [order(0), order(100), order(5_000_000), order(0, shuffle=1)]
    assert len({tuple(o) for o in orders}) == 4
    assert orders[0] == order(0)
    assert order(0, shuffle=None) == list(range(100))


def test_held_out_rows_are_disjoint_and_independent_of_the_file_order(tmp_path):
    rows = sums(300)
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    problems = {
        part: {t.problem for t in all_of(opened(path, part=(part, 0.2)))}
        for part in ("train", "eval")
    }
    assert not problems["train"] & problems["eval"]
    assert len(problems["train"] | problems["eval"]) == 300
    assert 30 < len(problems["eval"]) < 90
    other = write_jsonl(tmp_path / "b.jsonl", [*rows[::-1], *rows])  # and everything twice
    assert {t.problem for t in all_of(opened(other, part=("eval", 0.2)))} == problems["eval"]


def test_data_can_be_read_from_many_threads(tmp_path):
    data = opened(write_jsonl(tmp_path / "a.jsonl", sums(50)), shuffle=3)
    found, threads = [], []
    for _ in range(4):
        threads.append(
            threading.Thread(target=lambda: found.append([t.name for t in all_of(data)]))
        )
        threads[-1].start()
    for thread in threads:
        thread.join(20)
    assert len(found) == 4
    assert all(names == found[0] for names in found)
    assert np.unique(found[0]).size == 50


def test_a_folder_of_an_installed_library_is_not_a_data_set(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    with pytest.raises(ConfigError, match="data=numpy: no such file or folder"):
        open_table("numpy")
    (tmp_path / "numpy").mkdir()
    write_jsonl(tmp_path / "numpy" / "train.jsonl", sums(2))
    assert len(open_table("numpy")) == 2
    shutil.rmtree(tmp_path / "numpy")  # its cached copy must not be taken for a data set of the hub
    with pytest.raises(ConfigError, match="data=numpy: no such file or folder"):
        open_table("numpy")
