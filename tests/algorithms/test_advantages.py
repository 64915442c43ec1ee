"""Advantages: the invariants that every estimator satisfies, whatever the layout.

The invariants are those of docs/algorithms.md.
"""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.algorithms.advantages import (
    ESTIMATORS,
    check_state_keys,
    compute_advantages,
    state_match_fraction,
)
from agentrl.algorithms.trajectories import EpisodeScores, build_trajectories, split_by_turn
from agentrl.config import AlgorithmConfig
from agentrl.errors import ConfigError
from agentrl.types import Outcome, ScoredEpisode
from tests.training.samples import episode, training_samples, turn

ANY = st.sampled_from(sorted(ESTIMATORS))
OF_EPISODES = ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline", "prime")
OF_TURNS = ("turn_grpo", "state_grpo", "gigpo")
REWARD = st.integers(-8, 8).map(lambda n: n / 4)


def config(estimator, **changes):
    return AlgorithmConfig(estimator=estimator, **{"discount": 0.5, "gae_lambda": 0.9, **changes})


def scored(rewards, keys=None, tokens=2, outcome=Outcome.TERMINATED):
    keys = keys or ["a", "b", "c", "d"][: len(rewards)]
    turns = [turn(reply=range(2, 2 + tokens), state_key=key) for key in keys]
    return ScoredEpisode(episode=episode(turns, outcome), components={}, rewards=tuple(rewards))


@st.composite
def steps(draw):
    """Groups of episodes."""
    groups = []
    for _ in range(draw(st.integers(1, 3))):
        group = []
        for _ in range(draw(st.integers(1, 4))):
            rewards = draw(st.lists(REWARD, min_size=1, max_size=3))
            keys = draw(
                st.lists(st.sampled_from("ab"), min_size=len(rewards), max_size=len(rewards))
            )
            sizes = draw(st.lists(st.integers(1, 3), min_size=len(rewards), max_size=len(rewards)))
            turns = [
                turn(reply=range(2, 2 + n), state_key=key)
                for n, key in zip(sizes, keys, strict=True)
            ]
            outcome = draw(
                st.sampled_from([Outcome.TERMINATED, Outcome.TRUNCATED, Outcome.DEVICE_ERROR])
            )
            group.append(
                ScoredEpisode(
                    episode=episode(turns, outcome), components={}, rewards=tuple(rewards)
                )
            )
        groups.append(group)
    return groups


def scores(groups, seed=0):
    """Random model outputs for each episode, seeded by its content and not by its position."""
    found = []
    for group in groups:
        for one in group:
            size = sum(len(t.reply_ids) for t in one.episode.turns)
            name = hash((one.rewards, one.episode.outcome, size, seed)) % 2**31
            generator = torch.Generator().manual_seed(name)
            values, implicit = torch.randn(2, size, generator=generator, dtype=torch.float64)
            found.append(
                EpisodeScores(
                    values=tuple(values.tolist()), last_value=0.5, implicit=tuple(implicit.tolist())
                )
            )
    return found


def credited(groups, settings, judgements=None, greedy=None):
    played = build_trajectories(
        groups, judgements or scores(groups), greedy or [0.25] * len(groups)
    )
    return split_by_turn(compute_advantages(played, settings).advantages, groups)


def flat(advantages):
    return [value for one in advantages for turns in one for value in turns]


@given(groups=steps(), estimator=ANY)
def test_every_layout_gives_the_same_advantage_to_the_same_tokens(groups, estimator):
    """Law 1: as one conversation, as a window of turns, or one sample for each turn."""
    advantages = credited(groups, config(estimator))
    seen = []
    for layout in (conversation, windowed, apart):
        shown = [[layout(one) for one in group] for group in groups]
        assert credited(shown, config(estimator), scores(groups)) == advantages
        episodes = [one.episode for group in shown for one in group]
        seen.append(
            [
                (number, sample.token_ids[place], value, at)
                for number, (one, own) in enumerate(zip(episodes, advantages, strict=True))
                for sample in training_samples(one, [v for turn in own for v in turn], index=number)
                for place, value, at in zip(
                    sample.sampled_positions, sample.advantages, sample.turns, strict=True
                )
            ]
        )
    assert seen[0] == seen[1] == seen[2]


def relaid(scored, prompts):
    turns = [
        dataclasses.replace(one, prompt_ids=tuple(prompt))
        for one, prompt in zip(scored.episode.turns, prompts, strict=True)
    ]
    return dataclasses.replace(
        scored, episode=dataclasses.replace(scored.episode, turns=tuple(turns))
    )


def conversation(scored):
    prompts, said = [], [1]
    for k, one in enumerate(scored.episode.turns):
        prompts.append(said)
        said = [*said, *one.reply_ids, 50 + k]
    return relaid(scored, prompts)


def windowed(scored):
    turns = scored.episode.turns
    return relaid(
        scored,
        [[1, *(turns[k - 1].reply_ids if k else ()), 60 + k] for k in range(len(turns))],
    )


def apart(scored):
    return relaid(scored, [[90 + k] for k in range(len(scored.episode.turns))])


def last_raised(groups, shift):
    return [
        [
            dataclasses.replace(one, rewards=(*one.rewards[:-1], one.rewards[-1] + shift))
            for one in group
        ]
        for group in groups
    ]


def assert_unmoved(groups, moved, chosen):
    found = flat(credited(moved, chosen, scores(groups)))
    assert found == pytest.approx(flat(credited(groups, chosen)), abs=1e-6)


@given(groups=steps(), estimator=st.sampled_from(OF_EPISODES), shift=st.integers(-20, 20))
def test_shifting_all_rewards_of_a_group_changes_no_advantage(groups, estimator, shift):
    """Law 4, where whole episodes are compared: at any discount."""
    assert_unmoved(groups, last_raised(groups, shift), config(estimator))


@given(groups=steps(), estimator=st.sampled_from(OF_TURNS), shift=st.integers(-20, 20))
def test_shifting_all_rewards_of_a_group_changes_no_turn_without_a_discount(
    groups, estimator, shift
):
    """Law 4, where turns are compared by all that comes: each is as much more worth."""
    assert_unmoved(groups, last_raised(groups, shift), config(estimator, discount=1.0))


@given(
    groups=steps(),
    estimator=st.sampled_from(["gigpo", "state_grpo"]),
    shift=st.integers(-20, 20),
    discount=st.sampled_from([0.0, 0.25, 0.5]),
)
def test_shifting_all_rewards_of_a_group_changes_no_turn_as_far_from_the_end(
    groups, estimator, shift, discount
):
    """Law 4, where turns at equal states have equally many turns to come: discounted alike."""
    groups = [[counting_down(one) for one in group] for group in groups]
    moved = last_raised(groups, shift)
    assert_unmoved(groups, moved, config(estimator, discount=discount))


def counting_down(scored):
    """The same, where a state says how many turns are to come."""
    turns = scored.episode.turns
    turns = [
        dataclasses.replace(one, state_key=f"{one.state_key}{len(turns) - k}")
        for k, one in enumerate(turns)
    ]
    return dataclasses.replace(
        scored, episode=dataclasses.replace(scored.episode, turns=tuple(turns))
    )


@pytest.mark.parametrize("estimator", OF_TURNS)
def test_a_shift_that_is_discounted_differently_changes_advantages(estimator):
    """The exception to invariant 4: turns from one state with different numbers of turns left."""
    group = [[scored([0.0, 1.0], ["a", "a"]), scored([2.0], ["a"])]]
    moved = last_raised(group, 8)
    found, before = (flat(credited(g, config(estimator))) for g in (moved, group))
    assert found != pytest.approx(before, abs=0.1)


@given(groups=steps(), estimator=st.sampled_from(OF_TURNS), shift=st.integers(-20, 20))
def test_shifting_the_reward_of_every_turn_changes_no_advantage(groups, estimator, shift):
    """Law 4, where turns are compared by what they earn themselves."""
    moved = [
        [dataclasses.replace(one, rewards=tuple(r + shift for r in one.rewards)) for one in g]
        for g in groups
    ]
    # More turns would earn an episode more: its part of gigpo is left out.
    assert_unmoved(groups, moved, config(estimator, discount=0.0, episode_weight=0.0))


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_advantages_of_a_single_episode_in_a_group(estimator):
    """0 where episodes are compared; turns are compared with others of their own episode."""
    groups = [[scored([0.0, 1.0], ["a", "a"], tokens=1)]]
    found = flat(credited(groups, config(estimator)))
    assert any(found) == (estimator not in OF_EPISODES)
    strangers = [[scored([0.0, 1.0], ["a", "b"], tokens=1)]]
    if estimator in ("gigpo", "state_grpo"):
        assert not any(flat(credited(strangers, config(estimator))))


@given(groups=steps(), estimator=ANY, noise=st.floats(-100, 100))
def test_tokens_outside_the_mask_have_no_influence(groups, estimator, noise):
    """Law 3: whatever stands where none was."""
    played = build_trajectories(groups, scores(groups), [0.25] * len(groups))
    names = ("rewards", "values", "implicit")
    filled = {n: torch.where(played.token_mask, getattr(played, n), noise) for n in names}
    expected = compute_advantages(played, config(estimator))
    found = compute_advantages(dataclasses.replace(played, **filled), config(estimator))
    assert torch.equal(found.advantages, expected.advantages)
    assert not found.advantages[~played.token_mask].any()
    if expected.returns is not None:
        assert torch.equal(found.returns, expected.returns)


@given(groups=steps(), estimator=ANY, data=st.data())
def test_permuting_episodes_permutes_advantages(groups, estimator, data):
    """Law 5."""
    orders = [data.draw(st.permutations(range(len(group)))) for group in groups]
    mixed = [[group[i] for i in order] for group, order in zip(groups, orders, strict=True)]
    straight, permuted = (credited(g, config(estimator)) for g in (groups, mixed))
    start = 0
    for order in orders:
        for place, i in enumerate(order):
            for one, other in zip(permuted[start + place], straight[start + i], strict=True):
                assert one == pytest.approx(other, abs=1e-8)
        start += len(order)


@given(groups=steps(), estimator=ANY)
def test_void_episodes_get_zero_and_do_not_affect_others(groups, estimator):
    valid = [[one for one in group if not one.episode.outcome.void] for group in groups]
    found = credited(groups, config(estimator))
    kept, start = [], 0
    for group in groups:
        for one, own in zip(group, found[start : start + len(group)], strict=True):
            if one.episode.outcome.void:
                assert not any(flat([own]))
            else:
                kept.append(own)
        start += len(group)
    valid = [group for group in valid if group]
    if valid:
        assert flat(kept) == pytest.approx(flat(credited(valid, config(estimator))), abs=1e-8)


@given(groups=steps(), estimator=ANY)
@settings(max_examples=30)
def test_whitened_advantages_have_mean_0_over_a_step(groups, estimator):
    played = build_trajectories(groups, scores(groups), [0.25] * len(groups))
    found = compute_advantages(played, config(estimator, whiten=True)).advantages[played.token_mask]
    if len(found):
        assert found.mean().item() == pytest.approx(0, abs=1e-6)


def test_a_critic_bootstraps_truncated_episodes_and_not_terminated_ones():
    both = [[scored([0.0]), scored([0.0], outcome=Outcome.TRUNCATED)]]
    scores = [EpisodeScores(values=(0.0, 0.0), last_value=8.0)] * 2
    found = credited(both, config("gae", gae_lambda=1.0), scores)
    assert found == [[[0.0, 0.0]], [[4.0, 4.0]]]  # discounted once, from turn to turn


def test_gae_also_returns_the_critics_targets():
    groups = [[scored([1.0, 3.0], tokens=1)]]
    scores = [EpisodeScores(values=(0.5, 2.0))]
    found = compute_advantages(build_trajectories(groups, scores), config("gae", gae_lambda=1.0))
    # the second 3; the first 1 + 0.5 * 3
    assert found.returns.tolist() == [[2.5, 3.0]]
    assert found.advantages.tolist() == [[2.0, 1.0]]
    assert compute_advantages(build_trajectories(groups, scores), config("grpo")).returns is None


def test_kl_in_the_reward_lowers_token_rewards():
    group = [[scored([1.0], tokens=2), scored([0.0], tokens=2)]]
    scores = [EpisodeScores(kl=(1.0, 3.0)), EpisodeScores(kl=(0.0, 0.0))]
    played = build_trajectories(group, scores, kl_coefficient=0.25)
    assert played.rewards.tolist() == [[-0.25, 0.25], [0, 0]]
    assert played.returns.tolist() == [0, 0]


def test_the_reward_of_a_turn_without_tokens_goes_to_the_turn_before():
    turns = [turn(reply=(2, 3)), turn(reply=()), turn(reply=(4,))]
    one = ScoredEpisode(episode=episode(turns), components={}, rewards=(1.0, 2.0, 4.0))
    played = build_trajectories([[one]])
    assert played.rewards.tolist() == [[0.0, 3.0, 4.0]]
    assert played.turn_rewards.tolist() == [[3.0, 0.0, 4.0]]
    assert played.discounts(0.5, 0.9).tolist() == [[0.9, 0.5, 0.5]]


def test_state_grpo_falls_back_to_episodes_unless_every_turn_has_a_state_key():
    named = [scored([0.0, 1.0]), scored([0.0, 0.0])]
    nameless = [scored([0.0, 1.0], ["a", None]), scored([0.0, 0.0])]
    found = credited([named, nameless], config("state_grpo", discount=0.0))
    assert [own[0] for own in found[:2]] == [[0, 0], [0, 0]]
    assert found[2][0] == found[2][1] == pytest.approx([0.7071] * 2, abs=1e-4)


def test_gigpo_without_state_keys_raises_an_error_with_a_fix():
    groups = [[scored([0.0], [None]), scored([1.0], [None])]]
    with pytest.raises(ConfigError, match=r"env\.state_key=screen"):
        check_state_keys(groups, config("gigpo"))
    check_state_keys(groups, config("state_grpo"))
    check_state_keys([[scored([0.0], [None], outcome=Outcome.TIMEOUT)]], config("gigpo"))


def test_state_match_fraction_is_the_share_of_turns_at_a_state_that_occurs_again():
    group = [
        scored([0.0, 1.0], ["a", "b"]),
        scored([1.0, 0.0], ["a", "c"]),
        scored([0.0, 0.0], ["a", "b"]),
        scored([0.0], ["c"], outcome=Outcome.ENV_ERROR),
    ]
    assert state_match_fraction(build_trajectories([group])) == pytest.approx(5 / 6)
    assert state_match_fraction(build_trajectories([[scored([0.0], [None])]])) == 0
