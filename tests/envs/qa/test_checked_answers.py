"""Questions whose answers can be checked: rows of GSM8K, and veRL's tool."""

import json

import pytest

import agentrl
from agentrl.envs.qa.checked_answers import CheckedQATranslator
from agentrl.errors import ActionError
from tests.data.rows import write_jsonl

ENV = "agentrl.envs.qa.checked_answers:CheckedQA"
ROW = {
    "question": "Ann has 30 clips and buys 42. How many has she?",
    "answer": "30 + 42 = 72\n#### 72",
}


@pytest.fixture
def env(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", [ROW])
    return agentrl.make(ENV, data=str(path)).unwrapped


@pytest.fixture
def translator():
    return CheckedQATranslator(tool="calc_gsm8k_reward", instructions="Check it.")


def call(answer, name="calc_gsm8k_reward"):
    arguments = json.dumps({"answer": answer})
    return f'I add.<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("72", "Current parsed answer='72' reward=1.0"),
        ("#### 72", "Current parsed answer='72' reward=1.0"),
        ("71", "Current parsed answer='71' reward=0.0"),
        ("none", "Current parsed answer='none' reward=0.0"),
    ],
)
def test_a_checked_answer_is_shown_with_its_reward_and_the_question_stays_open(
    env, translator, answer, shown
):
    env.reset(seed=0)
    observation, reward, terminated, _, info = env.step(translator.to_action(call(answer)))
    assert (observation["text"], reward, terminated) == (shown, 0.0, False)
    assert "metrics" not in info
    *_, terminated, _, info = env.step(translator.to_action("So it is\n#### 72"))
    assert terminated
    assert info["metrics"] == {"accuracy": 1.0}


@pytest.mark.parametrize(
    ("reply", "reward"),
    [("#### 72", 1.0), ("It is $72.\n#### $72", 1.0), ("#### 71", 0.0), ("?", 0.0)],
)
def test_the_first_reply_without_a_tool_call_is_the_answer(env, translator, reply, reward):
    env.reset(seed=0)
    _, got, terminated, _, _ = env.step(translator.to_action(reply))
    assert (got, terminated) == (reward, True)


def test_a_broken_call_is_an_error_and_no_answer(env, translator):
    assert "calc_gsm8k_reward" in translator.instructions()
    with pytest.raises(ActionError, match="unknown action 'other'"):
        translator.to_action(call("72", name="other"))
    with pytest.raises(ActionError, match="the reply is empty"):
        translator.to_action(" ")
    env.reset(seed=0)
    assert env.step(translator.no_action())[1:3] == (0.0, True)
