import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.config import RewardConfig
from agentrl.errors import ConfigError, RewardError
from agentrl.rewards import math_verify_process, maths
from agentrl.rewards.length import soft_punishment
from agentrl.rewards.math_verify_process import Verifier
from agentrl.rollout.rewards.loaded_reward import load_rewards
from agentrl.rollout.rewards.reward_calls import RewardSpec, inputs_of
from agentrl.rollout.rewards.scoring import RewardFunctions
from tests.rollout.rewards.test_reward_calls import answered


@pytest.fixture(scope="module")
def verifier():
    return Verifier(10.0)


@pytest.mark.parametrize(
    ("truth", "reply", "right"),
    [
        ("1/2", r"so it is \boxed{\frac{1}{2}}", True),
        ("0.5", "<think>half</think><answer>1/2</answer>", True),
        (r"$x^2+1$", r"\boxed{1+x^2}", True),
        ("140°", "<answer>140</answer>", True),
        ("140°", r"<answer>140^\circ</answer>", True),
        ("<answer> 140° </answer>", "<answer>140 degrees</answer>", True),
        ("140", "<answer>140°</answer>", True),
        ("140°", "<answer>40°</answer>", False),
        ("5√{3}", r"<answer>5\sqrt{3}</answer>", True),
        ("5√{3}", "<answer>5</answer>", False),
        ("9πcm^{2}", r"\boxed{9\pi}", True),
        ("10海里", "<answer>10.0</answer>", True),
        (r"\{1,2,3\}", r"\boxed{\{3,2,1\}}", True),
        (r"\{1,2,3\}", r"\boxed{\{3,2\}}", False),
        ("[0,1)", r"\boxed{[0,1)}", True),
        ("[0,1)", r"\boxed{[0,1]}", False),
        (r"(-\infty,2]\cup[3,\infty)", r"\boxed{(-\infty, 2] \cup [3, \infty)}", True),
        ("(1,2)", r"\boxed{(2,1)}", False),
        (r"2\sqrt{3}", r"<answer>\boxed{\sqrt{12}}</answer>", True),
        ("1,200", r"\boxed{1200}", True),
        ("10%", r"\boxed{0.1}", True),
        ("42", "the answer is 42", True),
        ("42", "<answer>41</answer>", False),
        ("42", "", False),
        ("42", r"first \boxed{42}, no: \boxed{7}", False),
    ],
)
def test_answers_are_compared_as_maths(verifier, truth, reply, right):
    assert verifier.verify(truth, reply) == (float(right), 0.0)


def test_an_endless_comparison_counts_as_wrong_and_the_next_one_works():
    verifier = Verifier(1.0)
    assert verifier.verify("42", r"\boxed{9^{9^{9^{9}}}}") == (0.0, 1.0)
    assert verifier.verify("42", r"\boxed{42}") == (1.0, 0.0)


def test_endless_comparisons_affect_no_other_answers():
    config = RewardConfig(function="agentrl.rewards.maths:Accuracy", kwargs={"deadline_s": 0.5})
    bombs = [rf"\boxed{{9^{{9^{{9^{{{n}}}}}}}}}" for n in range(9, 15)]
    replies = [r"\boxed{42}", *bombs[:3], r"\boxed{42}", r"\boxed{42}", *bombs[3:], r"\boxed{42}"]
    with RewardFunctions([config], 30.0) as rewards:
        scored = list(rewards.score_all(map(answered, replies)))
    for reply, one in zip(replies, scored, strict=True):
        right = float(reply not in bombs)
        assert one.components == {"Accuracy": (0.0, right), "Accuracy/unsettled": (0.0, 1 - right)}


def test_a_known_unsettled_answer_is_not_computed_again(monkeypatch):
    verifier = Verifier(0.3)
    for thought in ("", "hm ", "aha "):
        found = verifier.verify_all([("42", rf"{thought}\boxed{{9^{{9^{{9^{{9}}}}}}}}")] * 4)
        assert found == [(0.0, 1.0)] * 4
        monkeypatch.setattr(math_verify_process, "_compare_all", None)


@pytest.mark.parametrize(("computed_s", "known"), [(0.1, False), (5.0, True)])
def test_an_answer_that_waited_for_a_cpu_is_tried_again(computed_s, known):
    found = math_verify_process._answer_from(b"{}\n", computed_s, 5.0)
    assert found == {"right": False, "unsettled": True, "known": known}


def test_a_truth_not_parsed_in_time_is_an_error():
    assert math_verify_process._answer_from(b"", 0.1, 5.0) == {
        "error": "the true answer cannot be parsed within 5 s"
    }


def test_an_unparsable_truth_affects_only_its_own_pair(verifier):
    found = verifier.verify_all([("...", "1"), (None, "1"), ("1", r"\boxed{1}")])
    assert [str(one) for one in found[:2]] == [
        "maths: the true answer '...' is not math; compare it as text",
        "maths: the environment's info has no ground_truth",
    ]
    assert found[2] == (1.0, 0.0)


@pytest.mark.parametrize("truth", [None, "", "  "])
def test_without_a_truth_there_is_no_reward(verifier, truth):
    with pytest.raises(RewardError, match="no ground_truth"):
        verifier.verify(truth, r"\boxed{1}")


def test_text_that_is_not_math_is_compared_as_text(verifier):
    assert verifier.verify("(B)", "<answer>(b)</answer>", "words") == (1.0, 0.0)
    assert verifier.verify("blue", "<answer>red</answer>", "words") == (0.0, 0.0)


@settings(max_examples=30, deadline=None)
@given(st.text(alphabet=r"\{}$()[]^_0123456789abx+-*/=,. ", max_size=40))
def test_any_reply_is_right_wrong_or_unsettled(verifier, reply):
    right, unsettled = verifier.verify("42", reply)
    assert right in (0.0, 1.0)
    assert unsettled in (0.0, 1.0)


@pytest.fixture
def score(verifier, monkeypatch):
    monkeypatch.setattr(maths, "Verifier", lambda deadline_s: verifier)  # including its imports

    def score(name, episode, **kwargs):
        (row,) = getattr(maths, name)(**kwargs)([inputs_of(episode)])
        return row

    return score


def test_r1v_weighs_accuracy_and_format(score):
    good = score("R1V", answered("<think>6*7</think><answer>42</answer>"), format_weight=0.2)
    assert good["overall"] == 1.0
    bare = score("R1V", answered(r"\boxed{42}"), format_weight=0.2)
    assert bare["overall"] == pytest.approx(0.8)
    assert bare["format"] == 0.0
    tidy = score("R1V", answered("<think>?</think><answer>41</answer>"), format_weight=0.2)
    assert tidy["overall"] == pytest.approx(0.2)
    assert tidy["accuracy"] == 0.0


def test_dapo_punishes_overlong_replies(score):
    reply = r"\boxed{42}"  # three tokens in these tests
    assert score("DAPO", answered(reply), longest=10, buffer=4)["overall"] == 1.0
    assert score("DAPO", answered(reply), longest=4, buffer=2)["overall"] == 0.5
    assert score("DAPO", answered(reply), longest=3, buffer=2, factor=0.5)["overall"] == 0.5
    assert score("DAPO", answered(r"\boxed{1}"), longest=10, buffer=4)["overall"] == -1.0


@given(st.integers(0, 200), st.integers(1, 100), st.integers(1, 100))
def test_the_overlong_punishment_matches_the_paper(length, longest, buffer):
    buffer = min(buffer, longest)
    if length <= longest - buffer:
        expected = 0.0
    elif length <= longest:
        expected = ((longest - buffer) - length) / buffer
    else:
        expected = -1.0
    assert soft_punishment(length, longest, buffer) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "kwargs", "words"),
    [
        ("R1V", {"format_weight": 2}, "format_weight=2"),
        ("DAPO", {"longest": 4, "buffer": 5}, "buffer=5"),
        ("DAPO", {}, "does not accept its kwargs"),
        ("Accuracy", {"deadline": 1}, "does not accept its kwargs"),
    ],
)
def test_invalid_settings_are_rejected_before_any_work(name, kwargs, words):
    function = f"agentrl.rewards.maths:{name}"
    with pytest.raises(ConfigError, match=words):
        load_rewards([RewardSpec(function=function, kwargs=kwargs, kind="auto")])


def test_a_missing_library_is_reported_before_any_work(monkeypatch):
    monkeypatch.setattr(maths, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"agentrl-screens\[math\]"):
        maths.Accuracy()
