import dataclasses

import pytest

from agentrl.config import RewardConfig
from agentrl.errors import ConfigError, RewardError
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.rewards.loaded_reward import load_reward_function, load_rewards
from agentrl.rollout.rewards.reward_calls import INPUT_NAMES, RewardSpec, inputs_of, score_batch
from agentrl.rollout.rewards.scoring import RewardFunctions
from tests.rollout.test_collector import episode_of

TICKET = requests_of_step("train", 1, [5], 1)[0]


def answered(reply="42", truth="42", turns=2, request=TICKET):
    episode = episode_of(request, turns=turns)
    last = dataclasses.replace(
        episode.turns[-1], reply=reply, reply_ids=(1, 2, 3), info={"ground_truth": truth}
    )
    return dataclasses.replace(episode, turns=(*episode.turns[:-1], last))


def batch(name, **fields):
    return RewardFunctions(
        [RewardConfig(function=f"tests.rollout.batch_rewards:{name}", **fields)], 20.0
    )


@pytest.fixture(scope="module")
def by_reply():
    """Call the function that the reply names."""
    with batch("by_reply") as rewards:
        yield rewards


def test_the_names_of_inputs_besides_columns_are_listed():
    episode = dataclasses.replace(episode_of(TICKET, turns=1), reset_info={"row": {"column": 1}})
    assert {*inputs_of(episode)} == {*INPUT_NAMES, "column"}


THEIRS = """
def easyr1(reward_inputs, format_weight=0.1):
    scores = []
    for reward_input in reward_inputs:
        right = float(reward_input["response"].strip() == reward_input["ground_truth"])
        short = float(reward_input["response_length"] < 10)
        overall = (1 - format_weight) * right + format_weight * short
        scores.append({"overall": overall, "format": short})
    return scores


def easyr1_of_one(reward_input):
    return {"overall": float(reward_input["response"] == reward_input["ground_truth"])}


def verl(data_source, solution_str, ground_truth, extra_info=None):
    right = solution_str.strip() == ground_truth
    turns = extra_info["num_turns"]
    return {"score": float(right), "acc": right, "pred": solution_str, "turns": turns}


def verl_number(data_source, solution_str, ground_truth, bonus=0.0):
    assert data_source
    return (solution_str == ground_truth) + bonus


def verl_defaults(data_source="", solution_str="", ground_truth=""):
    return float(solution_str == ground_truth)


def verl_batch(data_sources, solution_strs, ground_truths, extra_infos, bonus=0.0):
    assert len(data_sources) == len(extra_infos) == len(solution_strs)
    right = [said == true for said, true in zip(solution_strs, ground_truths, strict=True)]
    return [{"score": one + bonus, "turns": extra_infos[0]["num_turns"]} for one in right]


def make(bonus=0.5):
    def made(solution_strs, ground_truths, **kwargs):
        return [bonus for _ in solution_strs]

    return made


async def trl(prompts, completions, ground_truth, most, **columns):
    texts = [completion[0]["content"] for completion in completions]
    assert prompts[0][-1]["role"] == "user"
    return [most if said == true else None for said, true in zip(texts, ground_truth)]


def trl_of_ids(completion_ids, **kwargs):
    return [float(len(ids)) for ids in completion_ids]


def openrlhf(queries, prompts, labels):
    assert queries[0].startswith(prompts[0])
    right = [label in query[len(prompts[0]):] for query, label in zip(queries, labels)]
    return {"rewards": [float(one) for one in right], "scores": [0.5] * len(queries)}


def of_other_names(source, answer, truth):
    return 1.0


def without_score(data_source, solution_str, ground_truth):
    return {"acc": 1.0}


def make_nothing(bonus):
    return bonus
"""


def loaded(folder, name, kwargs, kind="auto"):
    path = folder / "of_other_trainers.py"
    path.write_text(THEIRS)
    spec = RewardSpec(function=f"{path}:{name}", kwargs=kwargs, kind=kind)
    reward = load_reward_function(spec)
    return lambda reply: score_batch(name, reward.function, [inputs_of(answered(reply))])[0]


@pytest.mark.parametrize(
    ("name", "kwargs", "right", "wrong"),
    [
        ("easyr1", {"format_weight": 0}, {"overall": 1, "format": 1}, {"overall": 0, "format": 1}),
        ("easyr1_of_one", {}, {"overall": 1}, {"overall": 0}),
        ("verl", {}, {"overall": 1, "acc": 1, "turns": 2}, {"overall": 0, "acc": 0, "turns": 2}),
        ("verl_number", {"bonus": 0.5}, {"overall": 1.5}, {"overall": 0.5}),
        ("verl_defaults", {}, {"overall": 1}, {"overall": 0}),
        ("verl_batch", {"bonus": 0.5}, {"overall": 1.5, "turns": 2}, {"overall": 0.5, "turns": 2}),
        ("make", {}, {"overall": 0.5}, {"overall": 0.5}),
        ("make", {"bonus": 2.0}, {"overall": 2}, {"overall": 2}),
        ("trl", {"most": 3}, {"overall": 3}, {}),
        ("trl_of_ids", {}, {"overall": 3}, {"overall": 3}),
        ("openrlhf", {}, {"overall": 1, "score": 0.5}, {"overall": 0, "score": 0.5}),
    ],
)  # fmt: skip
def test_functions_of_other_trainers_work_unchanged(tmp_path, name, kwargs, right, wrong):
    score = loaded(tmp_path, name, kwargs)
    assert (score("42"), score("41")) == (right, wrong)


def test_what_functions_of_other_trainers_do_wrong_is_named(tmp_path):
    assert loaded(tmp_path, "of_other_names", {}, "answer")("41") == {"overall": 1}
    with pytest.raises(ConfigError, match="make_nothing is not a function"):
        loaded(tmp_path, "make_nothing", {"bonus": 2.0})
    with pytest.raises(ConfigError, match=r"is an episode, reward_inputs, .* or queries\)"):
        loaded(tmp_path, "of_other_names", {})
    with pytest.raises(ValueError, match=r"returned no 'score'; it has \['acc'\]"):
        loaded(tmp_path, "without_score", {})("42")


def test_inputs_describe_the_episode():
    inputs = inputs_of(answered(turns=3))
    assert (inputs["response"], inputs["response_length"]) == ("42", 3)
    assert len(inputs["responses"]) == 3
    assert inputs["responses"][-1] == "42"
    assert inputs["ground_truth"] == "42"
    assert inputs["env_rewards"] == [1.0, 1.0, 1.0]
    assert inputs["info"] == {"ground_truth": "42"}


def test_ground_truth_may_come_from_the_reset_info():
    episode = dataclasses.replace(episode_of(TICKET, turns=1), reset_info={"ground_truth": "7"})
    assert inputs_of(episode)["ground_truth"] == "7"


def test_kind_can_be_configured_for_another_parameter_name():
    assert batch("of_other_name", kind="batch").score(answered()).reward == 2.0
    with pytest.raises(RewardError, match="of_other_name"):
        batch("of_other_name").score(answered())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "KeyError"),
        ("too_few", "returned 0 rows for 1 episodes"),
        ("without_overall", "has no 'overall'"),
        ("not_a_number", "'overall' is nan, not a finite number"),
        ("a_text", r"'accuracy' is 'yes' \(str\), not a number"),
        ("too_large", "'overall' is too large a number"),
        ("panics", "Panic: out of order"),
        ("broken", "Panic: no value"),
        ("no_list", "returned NoneType"),
        ("no_row", "a row is float"),
    ],
)
def test_invalid_result_is_a_typed_error_and_never_a_silent_zero(by_reply, name, words):
    with pytest.raises(RewardError, match=words):
        by_reply.score(answered(name))


def test_config_error_of_a_reward_ends_the_job(by_reply):
    with pytest.raises(ConfigError, match="no such key"):
        by_reply.score(answered("misconfigured"))


def test_class_is_instantiated_once_and_checked_before_any_work():
    scorer = batch("Counter", kwargs={"first": 3})
    assert [scorer.score(answered()).reward for _ in range(2)] == [3.0, 4.0]
    for kwargs, words in (
        ({"first": -1}, "first must not be negative"),
        ({"frist": 1}, "does not accept its kwargs"),
    ):
        spec = RewardSpec(
            function="tests.rollout.batch_rewards:Counter", kwargs=kwargs, kind="auto"
        )
        with pytest.raises(ConfigError, match=words):
            load_rewards([spec])


def test_episodes_that_end_together_are_scored_together(by_reply):
    sizes = [scored.reward for scored in by_reply.score_all([answered("count")] * 6)]
    assert sizes == [6.0] * 6


def test_huge_number_affects_only_its_own_row():
    huge = [{"overall": 1.0}, {"overall": 10**400}, {"error": "why"}]
    good, large, error = score_batch("reward", lambda reward_inputs: huge, [{}, {}, {}])
    assert good == {"overall": 1.0}
    assert isinstance(large, RewardError)
    assert "'overall' is too large a number" in str(large)
    assert isinstance(error, RewardError)
    assert str(error) == "reward: why"


def test_one_bad_episode_does_not_affect_the_rest_of_its_batch(by_reply):
    first, bad, last = by_reply.score_all([answered("1"), answered("0"), answered("4")])
    assert (first.reward, last.reward) == (1.0, 0.25)
    assert "ZeroDivisionError" in str(bad)


def test_batch_size_is_limited_by_the_function():
    with batch("one_by_one") as scorer:
        assert [scored.reward for scored in scorer.score_all([answered()] * 4)] == [1.0] * 4
    with pytest.raises(
        ConfigError, match="in_no_batch: max_batch_size=0 must be a positive integer"
    ):
        batch("in_no_batch")
