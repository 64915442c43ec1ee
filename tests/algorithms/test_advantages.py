"""Advantages: the invariants that every algorithm satisfies, whatever the layout.

The invariants are those of docs/algorithms.md.
"""

import dataclasses
import functools
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.algorithms.core.advantages import compute_advantages, state_match_fraction
from agentrl.algorithms.core.algorithm import check_state_keys, load_algorithm
from agentrl.algorithms.core.kl import ESTIMATES
from agentrl.algorithms.core.policy_loss import LossInputs
from agentrl.algorithms.core.trajectories import EpisodeScores, build_trajectories, split_by_turn
from agentrl.check.support import advantage_invariants
from agentrl.check.support.sample_steps import (
    layouts,
    model_scores,
    num_sequences,
    sample_turn,
    scored_episode,
    trajectories,
)
from agentrl.config import KLConfig, algorithm_config
from agentrl.errors import ConfigError
from agentrl.extension_points import ALGORITHM
from agentrl.types import Outcome

NAMES = [extension.name for extension in ALGORITHM.extensions()]
ANY = st.sampled_from(NAMES)
OF_EPISODES = [name for name in NAMES if ALGORITHM.resolve(name).compares == "episodes"]
OF_TURNS = [name for name in NAMES if ALGORITHM.resolve(name).compares in ("turns", "states")]
REWARD = st.integers(-8, 8).map(lambda n: n / 4)


@functools.cache
def config_of(name):
    return algorithm_config(name, whiten=False, discount=0.5)


def algorithm(name, **changes):
    return load_algorithm(dataclasses.replace(config_of(name), **changes))


def scored(rewards, keys=None, tokens=2, outcome=Outcome.TERMINATED):
    keys = keys or ["a", "b", "c", "d"][: len(rewards)]
    return scored_episode([sample_turn(tokens, key) for key in keys], rewards, outcome)


TURN = st.tuples(REWARD, st.sampled_from("ab"), st.integers(1, 3))
"""Its reward, state key and number of tokens."""
OUTCOME = st.sampled_from([Outcome.TERMINATED, Outcome.TRUNCATED, Outcome.DEVICE_ERROR])
EPISODE = st.builds(
    lambda turns, outcome: scored_episode(
        [sample_turn(tokens, key) for _, key, tokens in turns],
        [reward for reward, _, _ in turns],
        outcome,
    ),
    st.lists(TURN, min_size=1, max_size=3),
    OUTCOME,
)
STEPS = st.lists(st.lists(EPISODE, min_size=1, max_size=4), min_size=1, max_size=3)
"""Groups of episodes."""


def advantages_of(groups, chosen, scores=None):
    """[E][T][R]"""
    scores = scores or [model_scores(one) for group in groups for one in group]
    played = build_trajectories(groups, scores, [0.25] * len(groups))
    return split_by_turn(compute_advantages(played, chosen).advantages, groups)


def flat(advantages):
    return [value for one in advantages for turns in one for value in turns]


@given(groups=STEPS, name=ANY, noise=st.floats(-100, 100), data=st.data())
def test_every_algorithm_satisfies_the_invariants(groups, name, noise, data):
    """Form, invariants 1 (layout), 3 (mask) and 5 (order), void episodes, resampling."""
    chosen = algorithm(name)
    advantage_invariants.form_invariant(chosen, groups)
    advantage_invariants.layout_invariant(chosen, groups)
    advantage_invariants.mask_invariant(chosen, groups, noise)
    orders = [data.draw(st.permutations(range(len(group)))) for group in groups]
    advantage_invariants.order_invariant(chosen, groups, orders)
    advantage_invariants.void_invariant(chosen, groups)
    advantage_invariants.resample_invariant(chosen, groups, data.draw(st.integers(0, 100)))


def test_the_layouts_of_an_episode_differ():
    groups = [[scored([0.0, 1.0, 2.0])]]
    assert [num_sequences(laid_out) for laid_out in layouts(groups)] == [1, 3, 3]


@given(groups=STEPS, name=st.sampled_from(OF_EPISODES), shift=st.integers(-20, 20))
@settings(max_examples=60)
def test_shifting_all_rewards_of_a_group_changes_no_advantage(groups, name, shift):
    """Invariant 4, where whole episodes are compared: at any discount."""
    advantage_invariants.shift_invariant(algorithm(name), groups, shift)


@given(groups=STEPS, name=st.sampled_from(OF_TURNS), shift=st.integers(-20, 20))
@settings(max_examples=30)
def test_shifting_all_rewards_of_a_group_changes_no_turn_without_a_discount(groups, name, shift):
    """Invariant 4, where turns are compared by the whole return: each increases by the same."""
    advantage_invariants.shift_invariant(algorithm(name, discount=1.0), groups, shift)


@given(
    groups=STEPS,
    name=st.sampled_from(["gigpo", "state_grpo"]),
    shift=st.integers(-20, 20),
    discount=st.sampled_from([0.0, 0.25, 0.5]),
)
@settings(max_examples=30)
def test_shifting_all_rewards_of_a_group_changes_no_turn_as_far_from_the_end(
    groups, name, shift, discount
):
    """Invariant 4, where turns at equal states have equally many turns left."""
    groups = [[counting_down(one) for one in group] for group in groups]
    advantage_invariants.shift_invariant(algorithm(name, discount=discount), groups, shift)


def counting_down(scored):
    """The same, where a state says how many turns are left."""
    turns = scored.episode.turns
    turns = [
        dataclasses.replace(one, state_key=f"{one.state_key}{len(turns) - k}")
        for k, one in enumerate(turns)
    ]
    return dataclasses.replace(
        scored, episode=dataclasses.replace(scored.episode, turns=tuple(turns))
    )


@pytest.mark.parametrize("name", OF_TURNS)
def test_a_shift_that_is_discounted_differently_changes_advantages(name):
    """The exception to invariant 4: turns from one state with different numbers of turns left."""
    group = [[scored([0.0, 1.0], ["a", "a"]), scored([2.0], ["a"])]]
    with pytest.raises(AssertionError, match="changes advantages, by up to"):
        advantage_invariants.shift_invariant(algorithm(name), group, 8.0)


@given(groups=STEPS, name=st.sampled_from(OF_TURNS), shift=st.integers(-20, 20))
@settings(max_examples=30)
def test_shifting_the_reward_of_every_turn_changes_no_advantage(groups, name, shift):
    """Invariant 4, where turns are compared by their own rewards."""
    moved = [
        [dataclasses.replace(one, rewards=tuple(r + shift for r in one.rewards)) for one in g]
        for g in groups
    ]
    # More turns would earn an episode more: its part of gigpo is left out.
    own = {"episode_weight": 0.0} if hasattr(config_of(name), "episode_weight") else {}
    chosen = algorithm(name, discount=0.0, **own)
    found, expected = (flat(advantages_of(g, chosen)) for g in (moved, groups))
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_advantages_of_a_single_episode_in_a_group(name):
    """0 where episodes are compared; turns are compared with others of their own episode."""
    groups = [[scored([0.0, 1.0], ["a", "a"], tokens=1)]]
    found = flat(advantages_of(groups, algorithm(name)))
    assert any(found) == (name not in OF_EPISODES)
    strangers = [[scored([0.0, 1.0], ["a", "b"], tokens=1)]]
    if name in ("gigpo", "state_grpo"):
        assert not any(flat(advantages_of(strangers, algorithm(name))))


@given(groups=STEPS, name=ANY)
@settings(max_examples=30)
def test_whitened_advantages_have_mean_0_over_a_step(groups, name):
    played = trajectories(groups)
    found = compute_advantages(played, algorithm(name, whiten=True)).advantages[played.token_mask]
    if len(found):
        assert found.mean().item() == pytest.approx(0, abs=1e-6)


def test_a_critic_bootstraps_truncated_episodes_and_not_terminated_ones():
    both = [[scored([0.0]), scored([0.0], outcome=Outcome.TRUNCATED)]]
    scores = [EpisodeScores(values=(0.0, 0.0), last_value=8.0)] * 2
    found = advantages_of(both, algorithm("ppo"), scores)
    assert found == [[[0.0, 0.0]], [[4.0, 4.0]]]  # discounted once, from turn to turn


def test_gae_also_returns_the_critics_targets():
    groups = [[scored([1.0, 3.0], tokens=1)]]
    played = build_trajectories(groups, [EpisodeScores(values=(0.5, 2.0))])
    found = compute_advantages(played, algorithm("ppo"))
    # the second 3; the first 1 + 0.5 * 3
    assert found.returns.tolist() == [[2.5, 3.0]]
    assert found.advantages.tolist() == [[2.0, 1.0]]
    assert compute_advantages(played, algorithm("grpo")).returns is None


def test_kl_in_the_reward_lowers_token_rewards():
    group = [[scored([1.0], tokens=2), scored([0.0], tokens=2)]]
    scores = [EpisodeScores(kl=(1.0, 3.0)), EpisodeScores(kl=(0.0, 0.0))]
    played = build_trajectories(group, scores, kl_coefficient=0.25)
    assert played.rewards.tolist() == [[-0.25, 0.25], [0, 0]]
    assert played.returns.tolist() == [0, 0]


@pytest.mark.parametrize("spread", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("name", [None, *ESTIMATES])
def test_only_k1_in_the_reward_has_the_gradient_of_the_kl(name, spread):
    """Exactly: summed over all replies of two tokens, with every prefix's own distribution."""
    seed = torch.Generator().manual_seed(0)
    logits, noise = torch.randn(2, 6, 5, generator=seed, dtype=torch.float64)
    logits.requires_grad_()
    policy = logits.log_softmax(-1)
    reference = (logits.detach() + spread * noise).log_softmax(-1)

    def logprobs(table, first, second):
        return torch.stack([table[0, first], table[1 + first, second]])

    estimator = ESTIMATES[KLConfig(add_to="reward", estimate=name).estimator]
    true = surrogate = 0.0
    for reply in itertools.product(range(5), repeat=2):
        own, other = logprobs(policy, *reply), logprobs(reference, *reply)
        scores = [EpisodeScores(kl=tuple(estimator(own.detach(), other).tolist()))]
        played = build_trajectories([[scored([0.0])]], scores, kl_coefficient=1.0)
        true += own.sum().exp() * (own - other).sum()
        surrogate -= own.sum().exp() * played.returns.item()
    (expected,) = torch.autograd.grad(true, logits, retain_graph=True)
    (found,) = torch.autograd.grad(surrogate, logits)
    projection = ((found * expected).sum() / expected.square().sum()).item()
    if name in (None, "k1"):
        torch.testing.assert_close(found, expected)
    else:
        assert abs(projection) < (0.35 if name == "abs" else 0.6 * spread)


def test_opd_has_the_gradient_of_the_reverse_kl_to_the_teacher():
    """Exactly: summed over all tokens of a small vocabulary, weighted by their probability."""
    seed = torch.Generator().manual_seed(0)
    own, teacher = torch.randn(2, 7, generator=seed, dtype=torch.float64)
    own.requires_grad_()
    logprobs, other = own.log_softmax(-1), teacher.log_softmax(-1)
    episodes = [[scored([0.0], tokens=1)] for _ in own]
    old = logprobs.detach()
    scores = [EpisodeScores(teacher=(ratio,)) for ratio in (other - old).tolist()]
    chosen = algorithm("opd")
    found = compute_advantages(build_trajectories(episodes, scores), chosen).advantages[:, 0]
    inputs = LossInputs(logprobs=logprobs, old_logprobs=old, advantages=found, turn=torch.arange(7))
    surrogate = (old.exp() * chosen.loss(inputs).loss).sum()
    kl = (logprobs.exp() * (logprobs - other)).sum()
    (slope,) = torch.autograd.grad(surrogate, own, retain_graph=True)
    (expected,) = torch.autograd.grad(kl, own)
    torch.testing.assert_close(slope, expected)


def test_rewards_of_functions_are_sums_over_turns_where_they_apply():
    both = dataclasses.replace(
        scored([5.0, 8.0]),
        components={"a": (1.0, 2.0), "b": (1.0, 2.0), "b/detail": (9.0, 9.0)},
        weights={"a": 3.0, "b": 2.0},
    )
    # In another environment of a mixture, the same function has another weight.
    other = dataclasses.replace(scored([4.0]), components={"b": (8.0,)}, weights={"b": 0.5})
    plain = dataclasses.replace(scored([7.0]), components={}, weights={})
    void = scored([1.0], outcome=Outcome.ENV_ERROR)
    played = build_trajectories([[both, void], [other], [plain]])
    assert played.function_rewards.tolist() == [[3, 3, 0], [0, 0, 0], [0, 8, 0], [0, 0, 7]]
    assert played.function_weights.tolist() == [[3, 2, 0], [0, 0, 0], [0, 0.5, 0], [0, 0, 1]]


def test_the_reward_of_a_turn_without_tokens_goes_to_the_turn_before():
    turns = [sample_turn(2, None), sample_turn(0, None), sample_turn(1, None)]
    played = build_trajectories([[scored_episode(turns, (1.0, 2.0, 4.0))]])
    assert played.rewards.tolist() == [[0.0, 3.0, 4.0]]
    assert played.turn_rewards.tolist() == [[3.0, 0.0, 4.0]]
    assert played.discounts(0.5, 0.9).tolist() == [[0.9, 0.5, 0.5]]


def test_state_grpo_falls_back_to_episodes_unless_every_turn_has_a_state_key():
    named = [scored([0.0, 1.0]), scored([0.0, 0.0])]
    nameless = [scored([0.0, 1.0], ["a", None]), scored([0.0, 0.0])]
    found = advantages_of([named, nameless], algorithm("state_grpo", discount=0.0))
    assert [own[0] for own in found[:2]] == [[0, 0], [0, 0]]
    assert found[2][0] == found[2][1] == pytest.approx([0.7071] * 2, abs=1e-4)


def test_gigpo_without_state_keys_raises_an_error_with_a_fix():
    groups = [[scored([0.0], [None]), scored([1.0], [None])]]
    with pytest.raises(ConfigError, match=r"algorithm\.name=gigpo: .* env\.state_key=screen"):
        check_state_keys(groups, algorithm("gigpo"))
    check_state_keys(groups, algorithm("state_grpo"))
    check_state_keys([[scored([0.0], [None], outcome=Outcome.TIMEOUT)]], algorithm("gigpo"))


def test_state_match_fraction_is_the_share_of_turns_at_a_state_that_occurs_again():
    group = [
        scored([0.0, 1.0], ["a", "b"]),
        scored([1.0, 0.0], ["a", "c"]),
        scored([0.0, 0.0], ["a", "b"]),
        scored([0.0], ["c"], outcome=Outcome.ENV_ERROR),
    ]
    assert state_match_fraction(build_trajectories([group])) == pytest.approx(5 / 6)
    assert state_match_fraction(build_trajectories([[scored([0.0], ["a"])]])) == 0
    assert state_match_fraction(build_trajectories([[scored([0.0], [None])]])) is None
