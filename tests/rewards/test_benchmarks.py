"""Replies that the published evaluations of benchmarks accept or reject."""

import json

import pytest

from agentrl.rewards import benchmarks
from tests.data.rows import png, write_jsonl
from tests.data.test_contracts import scored
from tests.policies.completions_server import ok, reply, serving

OPTIONS = ["$6", "red cats", "a bank", "8"]
CHOICE = {"question": "Which?", "options": str(OPTIONS), "answer": "B"}
OPEN = {"question": "How much?", "options": "[]", "answer": "3.14"}
SEVERAL = {**OPEN, "answer": "['24/7', '3.429']"}
LETTER = {**OPEN, "answer": "C"}
VISTA = {
    "query": "Hint: ...", "choices": None, "answer": "5", "answer_type": "integer",
    "precision": None,
}  # fmt: skip
FLOAT = {**VISTA, "answer": "1.2", "answer_type": "float", "precision": 1.0}
LIST = {**VISTA, "answer": "[2014, 2016]", "answer_type": "list"}
ANGLE = {
    **VISTA, "choices": ["135°", "140°", "145°"], "answer": "145°", "answer_type": "text",
}  # fmt: skip
VERSE = {"query_cot": "Find it.", "answer": "14", "question_type": "free-form"}
VERSE_CHOICE = {**VERSE, "answer": "C", "question_type": "multi-choice"}


def total(folder, row, said, function, **kwargs):
    path = write_jsonl(folder / "rows.jsonl", [row])
    problem = next(name for name in ("question", "query", "query_cot") if name in row)
    reward = f"agentrl.rewards.benchmarks:{function}"
    keys = {"problem": problem}
    return scored(path, said, reward, kwargs=kwargs, grade="none", keys=keys).reward


@pytest.mark.parametrize(
    ("row", "said", "right"),
    [
        (CHOICE, "B", 1), (CHOICE, "The answer is (B)", 1), (CHOICE, "(A) or (B)", 1),
        (CHOICE, "Answer: B.", 1), (CHOICE, "(B), not A , not C ", 1),
        (CHOICE, "<think>(A)</think>\nB", 1), (CHOICE, "I think that these are Red Cats.", 1),
        (CHOICE, "A", 0), (CHOICE, "(B) or (A)", 0), (CHOICE, "B or A !", 0),
        (CHOICE, "not red cats but rather a bank", 0),
        (OPEN, "3.14", 1), (OPEN, "It is 3.1415.", 1), (OPEN, "a = 2\nb = 3.14", 1),
        (OPEN, "x = 3.14\nSo it is small", 0), (OPEN, "The total is 3.1", 0),
        (SEVERAL, "therefore 24/7", 1), (SEVERAL, "the answer is 3.429 s", 1), (SEVERAL, "3.4", 0),
        (LETTER, "the answer is c", 1), (LETTER, "the answer is because", 0),
        ({**OPEN, "answer": "1200"}, "It is 1,200 in all", 1),
    ],
)  # fmt: skip
def test_mmmu_reads_the_last_choice_and_the_final_phrases(tmp_path, row, said, right):
    assert total(tmp_path, row, said, "mmmu") == right


def test_mmmu_draws_an_option_for_a_reply_without_one_and_always_the_same(tmp_path):
    drawn = [total(tmp_path, CHOICE, f"Hm {n}", "mmmu") for n in range(40)]
    assert 2 < sum(drawn) < 20
    assert drawn[:5] == [total(tmp_path, CHOICE, f"Hm {n}", "mmmu") for n in range(5)]


@pytest.mark.parametrize(
    ("row", "said", "right"),
    [
        (VISTA, "5", 1), (VISTA, 'The answer is "5".', 1), (VISTA, 'The answer is "5.9".', 1),
        (VISTA, "There are 5 of 7 left, so 5", 1), (VISTA, r"so \boxed{5}", 1),
        (VISTA, "<think>7</think>5", 1), (VISTA, "6", 0), (VISTA, "five", 0), (VISTA, "", 0),
        (FLOAT, "1.2", 1), (FLOAT, "1.24", 1), (FLOAT, "It is 1.16 m", 1), (FLOAT, "1.26", 0),
        (LIST, "between [2014, 2016]", 1), (LIST, 'The answer is "[2014, 2016]".', 1),
        (LIST, "2014 and 2016", 0),
        (ANGLE, "145°", 1), (ANGLE, "C", 1), (ANGLE, "The correct answer is (C) 145°.", 1),
        (ANGLE, 'The answer is "145".', 1), (ANGLE, "so the angle must be equal to 145°", 1),
        (ANGLE, "B", 0), (ANGLE, 'The answer is "140".', 0), (ANGLE, "(c) is not so: (B)", 0),
    ],
)  # fmt: skip
def test_mathvista_reads_bare_answers_and_compares_by_type(tmp_path, row, said, right):
    assert total(tmp_path, row, said, "MathVista") == right


@pytest.mark.parametrize(
    ("row", "said", "right"),
    [
        (VERSE, "14", 1), (VERSE, "so L = 14", 1), (VERSE, r"\boxed{14.0}", 1), (VERSE, "41", 0),
        (VERSE_CHOICE, "C", 1), (VERSE_CHOICE, "The answer is C: 3", 1),
        (VERSE_CHOICE, "<answer>(C)</answer>", 1), (VERSE_CHOICE, "A: 2 fits, so B", 0),
        ({**VERSE, "answer": "domain: [-4, 0)"}, "<answer>Domain: [-4, 0)</answer>", 1),
    ],
)  # fmt: skip
def test_mathverse_takes_equal_letters_texts_and_numbers_without_a_judge(
    tmp_path, row, said, right
):
    assert total(tmp_path, row, said, "MathVerse") == right


@pytest.mark.parametrize(
    ("function", "row", "settled", "open_", "shown"),
    [
        ("MathVista", VISTA, ("5", "6"), "Five of them.", "5"),
        ("MathVerse", VERSE, ("14",), "Fourteen.", "14"),
    ],
)
def test_a_judge_grades_what_the_rules_cannot_read(tmp_path, function, row, settled, open_, shown):
    with serving() as server:
        server.usual = lambda body: ok(reply('{"reason": "Same.", "score": 1}'))
        judge = {"url": f"{server.url}/v1", "model": "judge"}
        for said in settled:
            total(tmp_path, row, said, function, judge=judge)
        assert not server.asked
        assert total(tmp_path, row, open_, function, judge=judge) == 1.0
        (asked,) = server.asked
        sent = json.dumps(asked["messages"])
        assert "final answer of a reply to a math question" in sent
        assert f'\\"{shown}\\"' in sent
        server.usual = lambda body: ok(reply('{"reason": "Not.", "score": 0}'))
        assert total(tmp_path, row, open_, function, judge=judge) == 0.0


@pytest.mark.parametrize(
    ("truth", "said", "right"),
    [
        ("140°", "140", 1), ("140°", r"140^\circ", 1), ("140°", "140 degrees", 1),
        ("140°", "<answer> 140 </answer>", 1), ("140°", r"<answer>$140^\circ$</answer>", 1),
        ("140°", "<answer> 40 </answer>", 0), ("5米", "<answer> 5.0 </answer>", 1),
        # It misses a number next to a tag and a bare root, but finds a number in the thoughts.
        ("140°", "<answer>140</answer>", 0),
        ("140°", "<think>It is 140.</think> <answer>9</answer>", 1),
        ("5√{3}", "<answer> 5 </answer>", 1), ("5√{3}", r"<answer>$5\sqrt{3}$</answer>", 0),
    ],
)  # fmt: skip
def test_geoqa_is_scored_by_what_r1vs_test_finds_in_the_whole_reply(tmp_path, truth, said, right):
    pytest.importorskip("math_verify")
    row = {"question": "?", "ground_truth": truth}
    assert total(tmp_path, row, said, "GeoQA") == right


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("<think>four</think> <answer> 4 </answer>", 1), ("<answer>04</answer>", 1),
        ("<answer>4</answer><answer>5</answer>", 1), ("<answer>four</answer><answer>4</answer>", 1),
        ("<answer>5</answer><answer>4</answer>", 0), ("4", 0), ("<answer>4.0</answer>", 0),
        (r"\boxed{4}", 0),
    ],
)  # fmt: skip
def test_superclevr_takes_the_first_tag_with_digits(tmp_path, said, right):
    (tmp_path / "a.png").write_bytes(png())
    row = {"question": "How many?", "image": "a.png", "solution": "<answer> 4 </answer>"}
    assert total(tmp_path, row, said, "superclevr") == right


def test_the_most_similar_option_is_the_one_with_the_fewest_edits():
    assert benchmarks._edits("kitten", "sitting") == 3
    assert [benchmarks._edits("", "abc"), benchmarks._edits("abc", "")] == [3, 3]
    assert benchmarks.mathvista_normalize("yess", ["no", "yes"], "text", None) == "yes"
