"""Advantages of worked examples; every number here was computed by hand."""

import math

import pytest
import torch

from agentrl.algorithms.core.statistics import returns_to_go, whiten
from agentrl.training.learner.implicit_reward import bce_gradients
from tests.algorithms.played import advantages_of, numbers, played, result_of


def bools(*rows):
    return torch.tensor(rows, dtype=torch.bool)


def close(found, *rows):
    torch.testing.assert_close(found, numbers(*rows), atol=2e-6, rtol=2e-6)


def test_grpo_normalizes_among_siblings():
    episodes = played(numbers([1], [2], [3], [7]), group=[0, 0, 0, 1])
    # mean 2, standard deviation (ddof 1) of 1, 2, 3 is 1; the fourth is alone
    close(advantages_of(episodes, "grpo"), [-1], [0], [1], [0])


@pytest.mark.parametrize("name", ["dapo", "gspo", "cispo", "sapo"])
def test_algorithms_that_change_the_loss_have_the_advantages_of_grpo(name):
    episodes = played(numbers([1, 0], [2, 1], [3, 3], [7, 0]), group=[0, 0, 0, 1])
    assert advantages_of(episodes, name).equal(advantages_of(episodes, "grpo"))


def test_void_episodes_are_excluded_from_the_mean_and_get_zero():
    episodes = played(numbers([1], [100], [3]), valid=[True, False, True])
    # mean 2, standard deviation sqrt(2)
    close(advantages_of(episodes, "grpo"), [-1 / math.sqrt(2)], [0], [1 / math.sqrt(2)])


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_equal_rewards_give_zero_advantage_even_if_their_mean_rounds(name):
    assert not advantages_of(played(numbers([0.1], [0.1], [0.1])), name).any()


def test_dr_grpo_does_not_divide_and_rloo_leaves_one_out():
    episodes = played(numbers([1], [2], [6]))
    close(advantages_of(episodes, "dr_grpo"), [-2], [-1], [3])
    # the others' means: 4, 3.5, 1.5
    close(advantages_of(episodes, "rloo"), [-3], [-1.5], [4.5])


def test_gdpo_normalizes_each_function_before_they_are_added():
    # In units of sqrt(3), the first gives -2/3, 1/3, 1/3, and the second -1/3, -1/3, 2/3: the sums
    # are -1, 0, 1, of standard deviation 1. A hundred times the reward changes nothing.
    for scale in (1, 100):
        functions = numbers([0, 0], [1, 0], [1, 10 * scale])
        found = advantages_of(played(numbers([0], [0], [0]), function_rewards=functions), "gdpo")
        close(found, [-1], [0], [1])


def test_gdpo_compares_episodes_with_equal_totals_by_the_functions_weights():
    functions, weights = numbers([1, 0], [0, 1]), numbers([2, 1], [2, 1])
    episodes = played(numbers([1], [1]), function_rewards=functions, function_weights=weights)
    half = 1 / math.sqrt(2)  # 2 half - half and its opposite, of standard deviation 1
    close(advantages_of(episodes, "gdpo"), [half], [-half])
    even = played(numbers([1], [1]), function_rewards=functions)
    close(advantages_of(even, "gdpo"), [0], [0])


def test_gdpo_compares_only_episodes_that_a_function_applies_to():
    functions, weights = numbers([1, 9], [3, 0], [5, 9]), numbers([0, 1], [1, 0], [1, 1])
    episodes = played(numbers([9], [3], [14]), function_rewards=functions, function_weights=weights)
    # The first function compares 3 and 5, the second 9 and 9: 0, -h, h, of standard deviation h.
    close(advantages_of(episodes, "gdpo"), [0], [-1], [1])


def test_gdpo_is_normalized_over_the_step_and_leaves_equal_groups_at_zero():
    functions = numbers([0, 0], [2, 0], [7, 7], [7, 7], [0, 0], [3, 1])
    episodes = played(numbers(*[[0]] * 6), group=[0, 0, 1, 1, 2, 2], function_rewards=functions)
    found = advantages_of(episodes, "gdpo")
    half = 1 / math.sqrt(2)  # the sums' standard deviation is sqrt(10 half^2 / 5) = 1
    close(found, [-half], [half], [0], [0], [-2 * half], [2 * half])
    assert not found[2:4].any()


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_a_single_episode_gets_zero_advantage(name):
    assert advantages_of(played(numbers([5])), name).tolist() == [[0]]


def test_returns_to_go_skip_tokens_that_were_not_sampled():
    rewards = numbers([1, 0, 9, 2, 4])
    mask = bools([True, True, False, True, True])
    # from the end: 4; 2 + 4/2 = 4; the gap is passed over; 0 + 4/2 = 2; 1 + 2/2 = 2
    close(returns_to_go(rewards, mask, 0.5), [2, 2, 0, 4, 4])
    close(returns_to_go(rewards, mask, 0.0), [1, 0, 0, 2, 4])


def test_turn_grpo_compares_every_turn_of_a_group():
    episodes = played(numbers([0, 1], [2, 0]), mask=bools([True, True], [True, False]))
    spread = math.sqrt(7 / 12)  # of 1/2, 1 and 2, whose mean is 7/6
    close(
        advantages_of(episodes, "turn_grpo", discount=0.5),
        [-2 / 3 / spread, -1 / 6 / spread],
        [5 / 6 / spread, 0],
    )


def test_gigpo_adds_episode_and_state_advantages():
    states = torch.tensor([[0, 1], [0, 2], [0, 1]])
    episodes = played(numbers([0, 1], [1, 0], [0, 0]), states=states)

    def gigpo(episode_weight, state_weight):
        weights = {"episode_weight": episode_weight, "state_weight": state_weight}
        return advantages_of(episodes, "gigpo", discount=0.0, **weights)

    third = math.sqrt(1 / 3)  # at state 0: 0, 1, 0 of mean 1/3 and standard deviation sqrt(1/3)
    half = 1 / math.sqrt(2)  # at state 1: 1 and 0
    own, whole = gigpo(0.0, 1.0), gigpo(1.0, 0.0)
    close(own, [-1 / 3 / third, half], [2 / 3 / third, 0], [-1 / 3 / third, -half])
    a = 1 / 3 / third  # returns 1, 1, 0 of mean 2/3
    close(whole, [a, a], [a, a], [-2 * a, -2 * a])
    torch.testing.assert_close(gigpo(2.0, 0.5), 2 * whole + 0.5 * own)


def test_gigpo_counts_an_episode_once_however_many_turns_it_has():
    mask = bools([True] * 3, [True, False, False])
    episodes = played(numbers([1, 0, 0], [3, 0, 0]), mask=mask)
    half = 1 / math.sqrt(2)
    close(advantages_of(episodes, "gigpo", discount=1.0), [-half] * 3, [half, 0, 0])


def test_states_of_different_groups_are_not_compared():
    episodes = played(
        numbers([0], [4], [1], [2]), group=[0, 0, 1, 1], states=torch.zeros(4, 1).long()
    )
    half = 1 / math.sqrt(2)
    for name in ("gigpo", "state_grpo"):
        own = {"episode_weight": 0.0} if name == "gigpo" else {}
        close(advantages_of(episodes, name, **own), [-half], [half], [-half], [half])


def test_reinforce_pp_includes_rewards_of_later_turns():
    mask = bools([True, False, True], [True, True, False])
    episodes = played(numbers([0, 9, 2], [0, 0, 0]), mask=mask)
    # returns 2, 2 and 0, 0: mean 1, standard deviation (ddof 1) sqrt(4/3)
    a = 1 / math.sqrt(4 / 3)
    close(advantages_of(episodes, "reinforce_pp"), [a, 0, a], [-a, -a, 0])


def test_reinforce_pp_baseline_is_whitened_over_the_batch():
    mask = bools([True, True], [True, False], [True, False], [True, False])
    rewards = numbers([1, 0], [3, 0], [5, 0], [5, 0])
    found = advantages_of(played(rewards, mask=mask, group=[0, 0, 1, 1]), "reinforce_pp_baseline")
    # -1, -1, 1, 0, 0: mean -1/5, squares 3 - 5/25 = 2.8, standard deviation sqrt(0.7)
    s = math.sqrt(0.7)
    close(found, [-0.8 / s, -0.8 / s], [1.2 / s, 0], [0.2 / s, 0], [0.2 / s, 0])


def test_remax_subtracts_the_greedy_return_from_every_token():
    mask = bools([True, False, True], [True, True, False])
    greedy = torch.tensor([1.0, 2.0]).double()
    episodes = played(numbers([0, 0, 3], [0, 1, 0]), mask=mask, greedy=greedy)
    close(advantages_of(episodes, "remax"), [2, 0, 2], [-1, -1, 0])


def test_gae_carries_value_and_advantage_across_tokens_that_were_not_sampled():
    episodes = played(
        numbers([0, 7, 1]), values=numbers([0.5, 9, 0.25]), mask=bools([True, False, True])
    )
    result = result_of(episodes, "ppo", discount=0.5, gae_lambda=0.5)
    # the last: 1 - 0.25 = 0.75; the first: 0.5 * 0.25 - 0.5 = -0.375, + 0.25 * 0.75 = -0.1875
    close(result.advantages, [-0.1875, 0, 0.75])
    close(result.returns, [0.3125, 0, 1.0])


@pytest.mark.parametrize("name", ["ppo", "pf_ppo"])
def test_gae_bootstraps_truncated_episodes(name):
    def cut(last_value):
        return played(numbers([0, 1]), last_values=torch.tensor([last_value]).double())

    close(advantages_of(cut(0.0), name), [1, 1])
    close(advantages_of(cut(4.0), name, discount=0.5), [1.5, 3])


def test_turn_gae_of_a_worked_example():
    # two turns of two tokens; turn ends hold the turns' rewards 1 and 3
    episodes = played(
        numbers([0, 1, 0, 3]),
        values=numbers([0.2, 0.4, 0.6, 0.8]),
        turn=torch.tensor([[0, 0, 1, 1]]),
    )
    result = result_of(episodes, "turn_ppo", discount=0.5, turn_gae_lambda=0.5)
    # ends: 3 - 0.8 = 2.2; 1 + 0.5 * 0.8 - 0.4 = 1, + 0.25 * 2.2 = 1.55
    # tokens before: 0.8 - 0.6 + 2.2 = 2.4; 0.4 - 0.2 + 1.55 = 1.75
    close(result.advantages, [1.75, 1.55, 2.4, 2.2])
    close(result.returns, [1.95, 1.95, 3.0, 3.0])


def test_rewards_within_a_turn_count_for_the_turn_before_it():
    # a penalty of 1 on the first token of the second turn
    episodes = played(numbers([0, 0, -1, 0]), turn=torch.tensor([[0, 0, 1, 1]]))
    found = advantages_of(episodes, "turn_ppo", discount=0.5, turn_gae_lambda=1.0)
    close(found, [-0.5, -0.5, -1, 0])


def test_prime_leaves_one_out_for_outcome_and_process():
    episodes = played(numbers([0, 1], [0, 0]), implicit=numbers([0.2, 0.4], [0.1, 0.1]))
    # outcome: 1 and -1. The others' means: 0.1 and 0.3.
    # process: 0.1, 0.3 -> 0.4, 0.3; and -0.2, -0.2 -> -0.4, -0.2
    close(advantages_of(episodes, "prime"), [1.4, 1.3], [-1.4, -1.2])


def test_prime_gives_a_single_episode_zero_advantage():
    close(advantages_of(played(numbers([0, 1]), implicit=numbers([1, 1])), "prime"), [0, 0])


def test_opd_adds_the_teachers_log_ratio_of_each_token_to_grpo():
    mask = bools([True, True], [True, False])
    teacher = numbers([0.5, -1], [0.25, 9])
    episodes = played(numbers([1, 0], [3, 9]), mask=mask, teacher=teacher)
    half = 1 / math.sqrt(2)  # GRPO's advantages of returns 1 and 3
    close(advantages_of(episodes, "opd"), [0.5 - half, -1 - half], [0.25 + half, 0])
    close(advantages_of(episodes, "opd", reward_weight=0.0), [0.5, -1], [0.25, 0])
    void = played(numbers([1, 0], [3, 9]), valid=[True, False], teacher=teacher)
    close(advantages_of(void, "opd"), [0.5, -1], [0, 0])


def test_whitening_of_a_worked_example():
    found = whiten(numbers([1, 50], [3, 5]), bools([True, False], [True, True]))
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
