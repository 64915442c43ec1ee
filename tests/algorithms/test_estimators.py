"""Estimators on worked examples; every number here was computed by hand."""

import math

import pytest
import torch

from agentrl.algorithms import estimators
from agentrl.training.learner.implicit_reward import bce_gradients

YES = torch.ones(4, dtype=torch.bool)


def numbers(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def bools(*rows):
    return torch.tensor(rows, dtype=torch.bool)


def close(found, *rows):
    torch.testing.assert_close(found, numbers(*rows), atol=2e-6, rtol=2e-6)


def test_grpo_normalizes_among_siblings():
    returns, group = torch.tensor([1.0, 2.0, 3.0, 7.0]).double(), torch.tensor([0, 0, 0, 1])
    # mean 2, standard deviation (ddof 1) of 1, 2, 3 is 1; the fourth is alone
    close(estimators.grpo(returns, group, YES), *[-1, 0, 1, 0])


def test_void_episodes_are_excluded_from_the_mean_and_get_zero():
    returns, group = torch.tensor([1.0, 100.0, 3.0]).double(), torch.zeros(3, dtype=torch.long)
    found = estimators.grpo(returns, group, torch.tensor([True, False, True]))
    # mean 2, standard deviation sqrt(2)
    close(found, *[-1 / math.sqrt(2), 0, 1 / math.sqrt(2)])


def test_equal_rewards_give_zero_advantage_even_if_their_mean_rounds():
    returns, group = torch.tensor([0.1, 0.1, 0.1]).double(), torch.zeros(3, dtype=torch.long)
    for estimate in (estimators.grpo, estimators.dr_grpo, estimators.rloo):
        assert estimate(returns, group, YES[:3]).tolist() == [0, 0, 0]


def test_dr_grpo_does_not_divide_and_rloo_leaves_one_out():
    returns, group = torch.tensor([1.0, 2.0, 6.0]).double(), torch.zeros(3, dtype=torch.long)
    close(estimators.dr_grpo(returns, group, YES[:3]), *[-2, -1, 3])
    # the others' means: 4, 3.5, 1.5
    close(estimators.rloo(returns, group, YES[:3]), *[-3, -1.5, 4.5])


@pytest.mark.parametrize("estimate", [estimators.grpo, estimators.dr_grpo, estimators.rloo])
def test_a_single_episode_gets_zero_advantage(estimate):
    assert estimate(torch.tensor([5.0]).double(), torch.tensor([0]), YES[:1]).tolist() == [0]


def test_returns_to_go_skip_tokens_that_were_not_sampled():
    rewards = numbers([1, 0, 9, 2, 4])
    mask = bools([True, True, False, True, True])
    # from the end: 4; 2 + 4/2 = 4; the gap is passed over; 0 + 4/2 = 2; 1 + 2/2 = 2
    close(estimators.returns_to_go(rewards, mask, 0.5), [2, 2, 0, 4, 4])
    close(estimators.returns_to_go(rewards, mask, 0.0), [1, 0, 0, 2, 4])


def test_turn_grpo_compares_every_turn_of_a_group():
    rewards, mask = numbers([0, 1], [2, 0]), bools([True, True], [True, False])
    found = estimators.turn_grpo(rewards, mask, torch.zeros(2, dtype=torch.long), YES[:2], 0.5)
    spread = math.sqrt(7 / 12)  # of 1/2, 1 and 2, whose mean is 7/6
    close(found, [-2 / 3 / spread, -1 / 6 / spread], [5 / 6 / spread, 0])


def test_gigpo_adds_episode_and_state_advantages():
    rewards = numbers([0, 1], [1, 0], [0, 0])
    mask = torch.ones(3, 2, dtype=torch.bool)
    states = torch.tensor([[0, 1], [0, 2], [0, 1]])
    group, valid = torch.zeros(3, dtype=torch.long), YES[:3]
    third = math.sqrt(1 / 3)  # at state 0: 0, 1, 0 of mean 1/3 and standard deviation sqrt(1/3)
    own = estimators.gigpo(rewards, mask, states, group, valid, 0.0, 0.0, 1.0)
    half = 1 / math.sqrt(2)  # at state 1: 1 and 0
    close(own, [-1 / 3 / third, half], [2 / 3 / third, 0], [-1 / 3 / third, -half])
    whole = estimators.gigpo(rewards, mask, states, group, valid, 0.0, 1.0, 0.0)
    a = 1 / 3 / third  # returns 1, 1, 0 of mean 2/3
    close(whole, [a, a], [a, a], [-2 * a, -2 * a])
    both = estimators.gigpo(rewards, mask, states, group, valid, 0.0, 2.0, 0.5)
    torch.testing.assert_close(both, 2 * whole + 0.5 * own)


def test_gigpo_counts_an_episode_once_however_many_turns_it_has():
    rewards, mask = numbers([1, 0, 0], [3, 0, 0]), bools([True] * 3, [True, False, False])
    states = torch.full((2, 3), -1)
    found = estimators.gigpo(rewards, mask, states, torch.zeros(2).long(), YES[:2], 1.0)
    half = 1 / math.sqrt(2)
    close(found, [-half] * 3, [half, 0, 0])


def test_states_of_different_groups_are_not_compared():
    rewards, mask = numbers([0], [4], [1], [2]), torch.ones(4, 1, dtype=torch.bool)
    states, group = torch.zeros(4, 1).long(), torch.tensor([0, 0, 1, 1])
    half = 1 / math.sqrt(2)
    found = estimators.gigpo(rewards, mask, states, group, YES, 1.0, 0.0, 1.0)
    close(found, [-half], [half], [-half], [half])


def test_reinforce_pp_includes_rewards_of_later_turns():
    rewards = numbers([0, 9, 2], [0, 0, 0])
    mask = bools([True, False, True], [True, True, False])
    found = estimators.reinforce_pp(rewards, mask, YES[:2])
    # returns 2, 2 and 0, 0: mean 1, standard deviation (ddof 1) sqrt(4/3)
    a = 1 / math.sqrt(4 / 3)
    close(found, [a, 0, a], [-a, -a, 0])


def test_reinforce_pp_baseline_is_whitened_over_the_batch():
    returns = torch.tensor([1.0, 3.0, 5.0, 5.0]).double()
    mask = bools([True, True], [True, False], [True, False], [True, False])
    found = estimators.reinforce_pp_baseline(returns, mask, torch.tensor([0, 0, 1, 1]), YES)
    # -1, -1, 1, 0, 0: mean -1/5, squares 3 - 5/25 = 2.8, standard deviation sqrt(0.7)
    s = math.sqrt(0.7)
    close(found, [-0.8 / s, -0.8 / s], [1.2 / s, 0], [0.2 / s, 0], [0.2 / s, 0])


def test_remax_subtracts_the_greedy_return_from_every_token():
    rewards = numbers([0, 0, 3], [0, 1, 0])
    mask = bools([True, False, True], [True, True, False])
    found = estimators.remax(rewards, mask, YES[:2], torch.tensor([1.0, 2.0]).double())
    close(found, [2, 0, 2], [-1, -1, 0])


def test_gae_carries_value_and_advantage_across_tokens_that_were_not_sampled():
    rewards, values = numbers([0, 7, 1]), numbers([0.5, 9, 0.25])
    mask = bools([True, False, True])
    advantages, returns = estimators.gae(
        rewards, values, mask, torch.zeros(1).double(), discount=0.5, lam=0.5
    )
    # the last: 1 - 0.25 = 0.75; the first: 0.5 * 0.25 - 0.5 = -0.375, + 0.25 * 0.75 = -0.1875
    close(advantages, [-0.1875, 0, 0.75])
    close(returns, [0.3125, 0, 1.0])


def test_gae_bootstraps_truncated_episodes():
    rewards, values, mask = numbers([0, 1]), numbers([0, 0]), bools([True, True])
    ended, _ = estimators.gae(rewards, values, mask, torch.tensor([0.0]).double())
    cut, _ = estimators.gae(rewards, values, mask, torch.tensor([4.0]).double(), discount=0.5)
    close(ended, [1, 1])
    close(cut, [1.5, 3])


def test_turn_gae_of_a_worked_example():
    # two turns of two tokens; turn ends hold the turns' rewards 1 and 3
    rewards, values = numbers([0, 1, 0, 3]), numbers([0.2, 0.4, 0.6, 0.8])
    mask, turn = torch.ones(1, 4, dtype=torch.bool), torch.tensor([[0, 0, 1, 1]])
    advantages, returns = estimators.turn_gae(
        rewards, values, mask, turn, torch.zeros(1).double(),
        turn_discount=0.5, turn_lam=0.5, discount=1.0, lam=1.0,
    )  # fmt: skip
    # ends: 3 - 0.8 = 2.2; 1 + 0.5 * 0.8 - 0.4 = 1, + 0.25 * 2.2 = 1.55
    # tokens before: 0.8 - 0.6 + 2.2 = 2.4; 0.4 - 0.2 + 1.55 = 1.75
    close(advantages, [1.75, 1.55, 2.4, 2.2])
    close(returns, [1.95, 1.95, 3.0, 3.0])


def test_rewards_within_a_turn_count_for_the_turn_before_it():
    # a penalty of 1 on the first token of the second turn
    rewards, values = numbers([0, 0, -1, 0]), torch.zeros(1, 4).double()
    mask, turn = torch.ones(1, 4, dtype=torch.bool), torch.tensor([[0, 0, 1, 1]])
    advantages, _ = estimators.turn_gae(
        rewards, values, mask, turn, torch.zeros(1).double(), turn_discount=0.5
    )
    close(advantages, [-0.5, -0.5, -1, 0])


def test_prime_leaves_one_out_for_outcome_and_process():
    rewards = numbers([0, 1], [0, 0])
    implicit = numbers([0.2, 0.4], [0.1, 0.1])
    mask = torch.ones(2, 2, dtype=torch.bool)
    found = estimators.prime(rewards, implicit, mask, torch.zeros(2).long(), YES[:2])
    # outcome: 1 and -1. The others' means: 0.1 and 0.3.
    # process: 0.1, 0.3 -> 0.4, 0.3; and -0.2, -0.2 -> -0.4, -0.2
    close(found, [1.4, 1.3], [-1.4, -1.2])


def test_prime_gives_a_single_episode_zero_advantage():
    found = estimators.prime(
        numbers([0, 1]), numbers([1, 1]), bools([True, True]), torch.zeros(1).long(), YES[:1]
    )
    close(found, [0, 0])


def test_whitening_of_a_worked_example():
    found = estimators.whiten(numbers([1, 50], [3, 5]), bools([True, False], [True, True]))
    close(found, [-1, 0], [0, 1])


def test_bce_gradients_are_the_derivative_of_the_cross_entropy():
    ratios, labels, beta = [0.0, 2.0, -1.0], [1.0, 1.0, 0.0], 0.5
    found, loss = bce_gradients(ratios, labels, beta)
    chances = [1 / (1 + math.exp(-beta * ratio)) for ratio in ratios]
    expected = [-math.log(chances[0]), -math.log(chances[1]), -math.log(1 - chances[2])]
    assert loss == pytest.approx(sum(expected) / 3)
    step = 1e-6
    for k, slope in enumerate(found):
        moved = [ratio + step * (k == other) for other, ratio in enumerate(ratios)]
        assert (bce_gradients(moved, labels, beta)[1] - loss) / step * 3 == pytest.approx(
            slope, abs=1e-5
        )
    assert bce_gradients([], [], beta) == ([], 0.0)
