import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.data import grading
from agentrl.data.grading import extract_answer, last_boxed
from agentrl.errors import ActionError
from agentrl.rewards import form, length, matching
from tests.rollout.rewards.test_reward_calls import TICKET, answered
from tests.rollout.test_collector import episode_of


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("<think>so</think><answer> 42 </answer>", "42"),
        (r"thus \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"<answer>\boxed{3}</answer>", "3"),
        (r"\boxed{a} and \boxed{b", "a"),
    ],
)
def test_answer_is_found_in_tag_or_box(reply, answer):
    assert extract_answer(reply) == answer


@pytest.mark.parametrize("style", ["answer", "either"])
def test_box_in_a_tag_is_opened_in_every_style(style):
    assert extract_answer(r"<answer>\boxed{5}</answer>", style) == "5"


@pytest.mark.parametrize(
    ("reply", "style"),
    [
        ("42", "either"),
        ("<answer>1</answer><answer>2</answer>", "either"),
        ("</answer>1<answer>", "either"),
        ("<answer>  </answer>", "either"),
        (r"\boxed{1}", "answer"),
        ("<answer>1</answer>", "boxed"),
        ("<answer>" + "9" * 5000 + "</answer>", "either"),
    ],
)
def test_a_reply_without_an_answer_is_an_action_error(reply, style):
    with pytest.raises(ActionError):
        extract_answer(reply, style)


@given(st.text(alphabet="ab{}\\boxed ", max_size=60), st.text(alphabet="ab12+^{}", max_size=20))
def test_the_last_complete_box_is_found_after_any_text(before, inside):
    depth = 0
    for character in inside:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth < 0:
            return
    if depth == 0:
        assert last_boxed(f"{before}\\boxed{{{inside}}}") == inside


def test_reply_full_of_open_boxes_takes_no_time():
    assert last_boxed(r"\boxed{" * 20_000) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-3", "-3"), ("1,200", "1200"), (".5", "1/2"), ("2e3", "2000"), ("3/4", "3/4"),
        ("12%", "3/25"), ("$5", "5"), ("\N{MINUS SIGN}7", "-7"), ("+4.", "4"),
    ],
)  # fmt: skip
def test_numbers_are_read_as_they_are_written(text, value):
    assert str(grading.parse_number(text)) == value


@pytest.mark.parametrize(
    "text", ["", "four", "1/0", "1,20", "1 2", "--1", "e3", "9" * 200, "1e9999"]
)
def test_text_that_is_not_a_number_gives_none(text):
    assert grading.parse_number(text) is None


@given(st.integers(-(10**12), 10**12))
def test_every_whole_number_is_read_with_and_without_commas(value):
    assert grading.parse_number(str(value)) == grading.parse_number(f"{value:,}") == value


@pytest.mark.parametrize(
    ("answer", "options", "letter"),
    [
        ("B", (), "B"), ("(b)", (), "B"), ("B. four", ("three", "four"), "B"),
        ("four", ("three", "Four"), "B"), ("B. three", ("three", "four"), None),
        ("C", ("three", "four"), None), ("Because", (), None), ("", (), None), ("a)", (), "A"),
    ],
)  # fmt: skip
def test_choice_is_a_letter_or_its_text(answer, options, letter):
    assert grading.chosen_letter(answer, options) == letter


def test_rewards_compare_the_answer_with_the_truth():
    said = "<think>?</think><answer>1,000.0</answer>"
    assert matching.exact(answered(said, "1000")) == 0.0
    assert matching.numeric(answered(said, "1000")) == 1.0
    assert matching.numeric(answered(said, "1009"), tolerance=0.01) == 1.0
    assert matching.exact(answered("<answer>Red.</answer>", "red")) == 1.0
    assert matching.choice(answered("<answer>(c)</answer>", "C")) == 1.0
    assert matching.exact(answered("nothing", "nothing")) == 0.0


def test_a_missing_or_wrong_kind_of_truth_is_an_error():
    with pytest.raises(ValueError, match="not a number"):
        matching.numeric(answered("<answer>1</answer>", "many"))
    with pytest.raises(KeyError, match="ground_truth"):
        matching.exact(episode_of(TICKET, turns=1))


def test_several_answers_may_be_right():
    episode = answered("<answer>grey</answer>")
    last = dataclasses.replace(episode.turns[-1], info={"accepted": ["gray", "grey"]})
    assert matching.exact(dataclasses.replace(episode, turns=(last,))) == 1.0


def test_form_of_thought_and_answer():
    assert form.is_think_answer(" <think>a\nb</think>\n<answer>1</answer> ")
    assert not form.is_think_answer("<think>a</think>so<answer>1</answer>")
    assert not form.is_think_answer("<think>a</think><answer>1</answer><answer>2</answer>")
    assert form.is_think_boxed(r"<think>a</think> so \boxed{1}")
    assert not form.is_think_boxed(r"<think>\boxed{1}</think> so")
    assert form.think_answer(answered("<think>a</think><answer>1</answer>")) == [0.0, 1.0]
    assert form.action(episode_of(TICKET, turns=2)) == [0.0, 0.0]


def test_length_costs_beyond_the_free_tokens():
    episode = answered()  # the last reply has three tokens
    assert length.penalty(episode, free=1, per_token=0.5)[-1] == -1.0
    assert length.overlong(episode, longest=4, buffer=2)[-1] == -0.5
