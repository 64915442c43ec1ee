import functools
from dataclasses import replace

import numpy as np
import pytest

from agentrl.config import RewardConfig
from agentrl.errors import ConfigError, RewardError
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.rewards.loaded_reward import load_rewards
from agentrl.rollout.rewards.reward_calls import RewardSpec
from agentrl.rollout.rewards.scoring import RewardFunctions
from agentrl.types import Outcome
from tests.rollout.test_collector import episode_of

TICKET = requests_of_step("train", 1, [5], 1)[0]


@functools.cache
def scorer(*names):
    return RewardFunctions([RewardConfig(function=f"tests.rollout.scores:{n}") for n in names])


def test_a_single_number_counts_for_the_last_turn():
    scored = scorer("given").score(episode_of(TICKET, turns=3))
    assert scored.rewards == (0.0, 0.0, 1.0)


def test_the_reward_is_the_weighted_sum_of_its_components():
    parts = [
        RewardConfig(function="tests.rollout.scores:given", weight=0.5),
        RewardConfig(function="tests.rollout.scores:per_turn", weight=2.0, kwargs={"scale": 3.0}),
    ]
    scored = RewardFunctions(parts).score(episode_of(TICKET, turns=2))
    assert scored.components == {"given": (0.0, 1.0), "per_turn": (3.0, 3.0)}
    assert scored.rewards == (6.0, 6.5)
    assert scored.weights == {"given": 0.5, "per_turn": 2.0}
    assert scored.reward == 12.5


def test_without_reward_functions_the_environments_own_counts():
    assert RewardFunctions([]).score(episode_of(TICKET, turns=2)).rewards == (1.0, 1.0)


def test_void_episode_has_no_reward():
    scored = scorer("given").score(episode_of(TICKET, Outcome.DEVICE_ERROR, turns=2))
    assert (scored.rewards, scored.components) == ((0.0, 0.0), {})


def test_reward_that_raises_is_a_typed_error():
    with pytest.raises(RewardError, match="RuntimeError: bad day"):
        scorer("raises").score(episode_of(TICKET))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("3.5", r"is '3\.5' \(str\), not a number"),
        (["1", "1"], r"is '1' \(str\), not a number"),
        (np.array("1.0"), r"is array\('1\.0', .*\(ndarray\), not a number"),
        (b"3", r"is b'3' \(bytes\), not a number"),
        (float("inf"), "is inf, not a finite number"),
        (10**400, "too large a number"),
        (None, r"is None \(NoneType\), not a number"),
        ([1.0], "1 values for 2 turns"),
        ([1.5e308, 1.5e308], "add up to inf.*too large"),
        (-1e39, "too large"),
    ],
)
def test_invalid_reward_is_an_error_as_in_a_batch(value, words):
    with pytest.raises(RewardError, match=words):
        scorer("given").score(replace(episode_of(TICKET, turns=2), reset_info={"value": value}))


@pytest.mark.parametrize(
    ("function", "kwargs", "words"),
    [
        ("tests.rollout.scores:gven", {}, "did you mean 'given'"),
        ("tests.rollout.nothing:x", {}, "cannot be imported"),
        ("tests.rollout.scores:NUMBER", {}, "is not a function"),
        ("tests.rollout.scores:per_turn", {"scael": 2}, "does not accept its kwargs"),
        ("no_colon", {}, "there is no such reward"),
    ],
)
def test_unknown_reward_is_an_error_before_any_work(function, kwargs, words):
    with pytest.raises(ConfigError, match=words):
        load_rewards([RewardSpec(function=function, kwargs=kwargs, kind="auto")])


def test_what_is_wrong_with_a_function_is_reported_by_its_process():
    with pytest.raises(ConfigError, match="did you mean 'given'"):
        RewardFunctions([RewardConfig(function="tests.rollout.scores:gven")])


def test_components_with_the_same_name_are_both_kept():
    parts = [
        RewardConfig(function="tests.rollout.scores:per_turn", kwargs={"scale": scale})
        for scale in (1.0, 2.0)
    ]
    scored = RewardFunctions(parts).score(episode_of(TICKET, turns=1))
    assert scored.components == {"per_turn": (1.0,), "per_turn-2": (2.0,)}


def test_components_with_the_same_name_are_numbered():
    parts = [
        RewardConfig(function=f"tests.rollout.scores:{name}")
        for name in ("per_turn_again", "per_turn", "per_turn", "per_turn")
    ]
    scored = RewardFunctions(parts).score(episode_of(TICKET, turns=1))
    assert list(scored.components) == ["per_turn_again", "per_turn", "per_turn-2", "per_turn-3"]


def test_numpy_numbers_are_numbers():
    assert scorer("numpy_number").score(episode_of(TICKET, turns=2)).rewards == (0.0, 2.0)
