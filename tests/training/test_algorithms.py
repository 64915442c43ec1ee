import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl.config import AlgorithmConfig
from agentrl.errors import ConfigError
from agentrl.training.algorithms import (
    MAX_K3,
    algorithm,
    kl_k3,
    ppo_clip,
    sample_weights,
)
from agentrl.training.credit import company, group_normalised, returns_to_go
from agentrl.types import Outcome
from tests.training.samples import scored

EPISODE = AlgorithmConfig(compare="episode")
REWARD = st.integers(-8, 8).map(lambda n: n / 4)


def advantages(group, config):
    return algorithm(config.name).advantages(group, config)


def test_grpo_of_a_worked_example():
    # mean 2, standard deviation (ddof 1) of 1, 2, 3 is 1
    group = [scored([1.0]), scored([0.5, 1.5]), scored([3.0])]
    result = advantages(group, EPISODE)
    assert result[0] == [pytest.approx(-1, abs=2e-6)]
    assert result[1] == [0.0, 0.0]
    assert result[2] == [pytest.approx(1, abs=2e-6)]


def test_void_episodes_are_left_out_of_the_mean_and_get_nothing():
    group = [scored([1.0]), scored([100.0, 0.0], outcome=Outcome.DEVICE_ERROR), scored([3.0])]
    result = advantages(group, EPISODE)
    assert result[1] == [0.0, 0.0]
    # mean 2, standard deviation sqrt(2)
    assert result[2] == [pytest.approx(1 / math.sqrt(2), abs=1e-5)]
    assert result[0] == [-result[2][0]]


@pytest.mark.parametrize("outcome", [Outcome.TERMINATED, Outcome.TRUNCATED])
def test_an_episode_without_company_teaches_nothing(outcome):
    alone = scored([5.0, 2.0], outcome=outcome)
    assert advantages([alone], EPISODE) == [[0.0, 0.0]]
    assert advantages([alone, scored([1.0], outcome=Outcome.TIMEOUT)], EPISODE)[0] == [0.0, 0.0]


def test_equal_rewards_teach_nothing_even_where_their_mean_rounds():
    assert advantages([scored([0.1])] * 3, EPISODE) == [[0.0]] * 3


def test_an_empty_group_is_a_value_error():
    with pytest.raises(ValueError, match="at least one"):
        group_normalised(torch.zeros(0), torch.zeros(0, dtype=torch.bool))


def test_returns_to_go_of_a_worked_example():
    assert returns_to_go([1.0, 2.0, 4.0], 0.5) == [3.0, 4.0, 4.0]
    assert returns_to_go([1.0, 2.0, 4.0], 0.0) == [1.0, 2.0, 4.0]


def test_states_are_compared_by_what_came_after_them():
    group = [
        scored([0.0, 1.0], ["a", "b"]),
        scored([1.0, 0.0], ["a", "c"]),
        scored([0.0, 0.0], ["a", "b"]),
    ]
    own = advantages(group, AlgorithmConfig(discount=0.0))
    third = math.sqrt(1 / 3)  # at "a": 0, 1, 0, of mean 1/3 and standard deviation sqrt(1/3)
    assert own[0][0] == pytest.approx(-1 / 3 / third, abs=1e-5)
    assert own[1] == [pytest.approx(2 / 3 / third, abs=1e-5), 0.0]  # alone at "c"
    assert own[0][1] == pytest.approx(1 / math.sqrt(2), abs=1e-5)
    assert own[2][1] == -own[0][1]
    later = advantages(group, AlgorithmConfig(discount=1.0))
    assert later[0][0] == later[1][0]
    assert later[0][0] == pytest.approx(1 / 3 / third, abs=1e-5)
    assert company(group) == pytest.approx(5 / 6)


def test_a_state_met_twice_in_one_episode_counts_twice():
    result = advantages([scored([0.0, 2.0], ["a", "a"])], AlgorithmConfig(discount=0.0))
    assert result == [[pytest.approx(-1 / math.sqrt(2)), pytest.approx(1 / math.sqrt(2))]]


def test_void_episodes_are_no_company_at_a_state():
    void = scored([9.0], ["a"], outcome=Outcome.ENV_ERROR)
    assert advantages([scored([1.0], ["a"]), void], AlgorithmConfig()) == [[0.0], [0.0]]


def test_auto_compares_episodes_where_a_state_has_no_name():
    group = [scored([0.0, 1.0], ["a", None]), scored([0.0, 0.0], ["a", "b"])]
    assert advantages(group, AlgorithmConfig()) == advantages(group, EPISODE)
    with pytest.raises(ConfigError, match="does not name the state"):
        advantages(group, AlgorithmConfig(compare="state"))


def test_turns_are_compared_with_all_turns_of_the_group_by_what_came_after_them():
    group = [
        scored([0.0, 1.0], ["a", "b"]),
        scored([2.0], ["c"]),
        scored([9.0], ["a"], outcome=Outcome.ENV_ERROR),
    ]
    result = advantages(group, AlgorithmConfig(compare="turn", discount=0.5))
    spread = math.sqrt(7 / 12)  # of 1/2, 1 and 2, whose mean is 7/6
    assert result[0] == pytest.approx([-2 / 3 / spread, -1 / 6 / spread], abs=1e-5)
    assert result[1:] == [[pytest.approx(5 / 6 / spread, abs=1e-5)], [0.0]]


def test_group_that_is_void_teaches_nothing_by_turns():
    void = scored([1.0, 2.0], ["a", "b"], outcome=Outcome.ENV_ERROR)
    assert advantages([void], AlgorithmConfig(compare="turn")) == [[0.0, 0.0]]


def test_an_unknown_algorithm_is_answered_with_a_suggestion():
    with pytest.raises(ConfigError, match="did you mean 'grpo'"):
        algorithm("grop")


@given(
    rewards=st.lists(st.lists(REWARD, min_size=2, max_size=2), min_size=2, max_size=6),
    shift=st.integers(-20, 20),
    compare=st.sampled_from(["state", "turn", "episode"]),
)
def test_shifting_all_rewards_changes_no_advantage(rewards, shift, compare):
    config = AlgorithmConfig(compare=compare, discount=0.0)
    group = [scored(r, ["a", "b"]) for r in rewards]
    moved = [scored([x + shift for x in r], ["a", "b"]) for r in rewards]
    assert advantages(group, config) == [
        pytest.approx(a, abs=1e-9) for a in advantages(moved, config)
    ]


@given(
    rewards=st.lists(st.lists(REWARD, min_size=2, max_size=2), min_size=1, max_size=6),
    compare=st.sampled_from(["state", "turn", "episode"]),
    data=st.data(),
)
def test_permuting_episodes_permutes_advantages(rewards, compare, data):
    config = AlgorithmConfig(compare=compare)
    group = [scored(r, ["a", "b"]) for r in rewards]
    order = data.draw(st.permutations(range(len(group))))
    straight = advantages(group, config)
    permuted = advantages([group[i] for i in order], config)
    for place, i in enumerate(order):
        assert permuted[place] == pytest.approx(straight[i], abs=1e-9)


def test_ppo_clip_of_worked_examples():
    old = torch.zeros(5)
    ratios = torch.tensor([1.5, 0.5, 1.5, 0.5, 10.0])
    credit = torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0])
    result = ppo_clip(ratios.log(), old, credit, AlgorithmConfig())
    # bounded above at 1.28, free below, free above, bounded below at 0.8, dual clip at 3
    torch.testing.assert_close(result.loss, torch.tensor([-1.28, -0.5, 1.5, 0.8, 3.0]))
    assert result.clipped.tolist() == [True, False, False, True, True]


def test_clipped_tokens_receive_no_gradient():
    logprobs = torch.tensor([1.5, 0.5, 10.0]).log().requires_grad_()
    credit = torch.tensor([1.0, -1.0, -1.0])
    ppo_clip(logprobs, torch.zeros(3), credit, AlgorithmConfig()).loss.sum().backward()
    assert logprobs.grad.tolist() == [0.0, 0.0, 0.0]


def test_the_first_step_is_the_plain_policy_gradient():
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    credit = torch.tensor([0.7, -0.3])
    ppo_clip(logprobs, logprobs.detach(), credit, AlgorithmConfig()).loss.sum().backward()
    torch.testing.assert_close(logprobs.grad, -credit)


@given(
    difference=st.floats(-1e4, 1e4),
    credit=st.floats(-10, 10),
)
def test_losses_stay_finite_whatever_the_ratio(difference, credit):
    logprobs = torch.tensor([difference], requires_grad=True)
    loss = ppo_clip(logprobs, torch.zeros(1), torch.tensor([credit]), AlgorithmConfig()).loss
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(logprobs.grad).all()
    assert 0 <= kl_k3(logprobs, torch.zeros(1)).item() <= MAX_K3


def test_k3_of_a_worked_example():
    value = kl_k3(torch.tensor([math.log(0.5)]), torch.tensor([math.log(0.25)]))
    assert value.item() == pytest.approx(0.5 + math.log(2) - 1)


def test_aggregation_weighs_tokens_or_samples_alike():
    assert sample_weights([1, 3, 0], "token_mean") == [0.25, 0.25, 0.0]
    assert sample_weights([1, 4, 0], "sequence_mean") == [0.5, 0.125, 0.0]
    with pytest.raises(ConfigError, match="did you mean 'token_mean'"):
        sample_weights([1], "token_men")


@given(
    counts=st.lists(st.integers(0, 50), min_size=1).filter(any),
    aggregate=st.sampled_from(["token_mean", "sequence_mean"]),
)
def test_the_weights_of_all_tokens_sum_to_one(counts, aggregate):
    weights = sample_weights(counts, aggregate)
    assert sum(w * n for w, n in zip(weights, counts, strict=True)) == pytest.approx(1)
