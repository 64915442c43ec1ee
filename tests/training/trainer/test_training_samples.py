"""Every algorithm, from scored episodes with images to an update of the model."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
import torch

from agentrl.algorithms.core.advantages import compute_advantages
from agentrl.algorithms.core.algorithm import (
    load_algorithm,
    most_varied_groups,
    overlong_penalty,
    penalize_overlong,
)
from agentrl.algorithms.core.trajectories import build_trajectories
from agentrl.check.support.sample_steps import scored_episode
from agentrl.config import Config, OverlongConfig, algorithm_config
from agentrl.errors import LearnerError
from agentrl.extension_points import ALGORITHM
from agentrl.training.trainer.training_samples import is_fresh
from agentrl.types import Outcome, TokenScores
from tests.training.episodes import play
from tests.training.samples import step_samples, turn

ALGORITHMS = [extension.name for extension in ALGORITHM.extensions()]
NUMBERS = ("loss", "grad_norm", "entropy", "approx_kl", "kl", "value_loss", "implicit_grad_norm")


@pytest.fixture(scope="module")
def groups(model_adapter):
    ends = [Outcome.TERMINATED, Outcome.TRUNCATED, Outcome.TERMINATED, Outcome.DEVICE_ERROR]
    return [[play(model_adapter, seed, m, end) for m, end in enumerate(ends)] for seed in range(2)]


def job(name, **changes):
    config = Config(algorithm=algorithm_config(name, **changes))
    config.optim.lr = 1e-3
    config.rollout.max_new_tokens = 8
    return config


def scored(samples):
    """A critic's values, as if there were one."""
    return [TokenScores(values=(0.5,) * len(s.sampled_positions), last_value=0.5) for s in samples]


def learn(make_learner, config, groups):
    learner = make_learner(config)
    built = step_samples(
        groups, config, learner.score_tokens, version=0, seed=1, greedy=[0.5] * len(groups),
        kl_coefficient=config.algorithm.kl.coefficient,
    )  # fmt: skip
    metrics = learner.update(built.samples)
    return learner, built, metrics


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_learns_at_its_defaults(make_learner, groups, name):
    config = job(name)
    config.validate_for_training()
    before = make_learner(config).weights()
    learner, built, metrics = learn(make_learner, config, groups)
    assert metrics["optimizer_steps"] == 1
    assert metrics["skipped"] == 0
    assert all(np.isfinite(value) for value in metrics.values())
    after = learner.weights()
    assert any(not torch.equal(before[n], after[n]) for n in before)
    assert 0 < built.metrics["nonzero_advantage_fraction"] <= 1
    void = [3, 7]
    assert not any(v for i in void for turn in built.advantages[i] for v in turn)


@pytest.mark.quick("grpo", "gspo", "ppo", "state_grpo")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_micro_batches_and_shared_prefixes_do_not_change_the_update(make_learner, groups, name):
    """Invariant 2, and that nothing of the packing is an approximation."""
    extra = {"kl": {"add_to": "loss", "coefficient": 0.1}, "entropy_coefficient": 0.01}
    extra |= {"importance_correction": {"kind": "sequence_truncate"}}
    found = []
    for budget, share in ((1, False), (150, True)):
        config = job(name, **extra)
        config.train.micro_batch_tokens, config.train.share_prefixes = budget, share
        _, _, metrics = learn(make_learner, config, groups)
        found.append([metrics[k] for k in NUMBERS if k in metrics])
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=2e-4, abs=1e-6)


def test_kl_in_the_reward_lowers_the_advantage_of_diverging_tokens(make_learner, groups):
    penalty = {"add_to": "reward", "coefficient": 0.5}
    config = job("reinforce_pp", kl=penalty, epochs=2)
    learner, _, _ = learn(make_learner, config, groups)
    built = step_samples(
        groups, config, learner.score_tokens, version=1, seed=1, kl_coefficient=0.5
    )
    assert learner.update(built.samples)["kl"] != 0
    # the loss compares with what sampled the tokens, as it does without a divergence
    assert all(sample.old_logprobs == sample.logprobs for sample in built.samples)
    free = job("reinforce_pp")
    plain = step_samples(groups, free, learner.score_tokens, version=1, seed=1)
    assert built.advantages[0] != plain.advantages[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "grpo"},
        {"name": "ppo"},
        {"name": "prime"},
        {"name": "pf_ppo"},
        {"name": "grpo", "entropy_coefficient": 0.1},
        {"name": "grpo", "kl": {"add_to": "loss", "coefficient": 0.1}},
        {"name": "grpo", "importance_correction": {"kind": "token_mask"}},
    ],
)
def test_stale_tokens_are_in_no_loss(make_learner, groups, changes):
    config = job(max_staleness=1, **changes)
    learner = make_learner(config)
    for version, stale in ((1, 0.0), (2, 1.0)):
        built = step_samples(groups, config, learner.score_tokens, version=version, seed=1)
        assert built.metrics["stale"] == stale
        metrics = learner.update(built.samples)
        assert metrics["optimizer_steps"] == 1 - stale
        assert ("value_loss" in metrics) == (changes["name"] in ("ppo", "pf_ppo") and not stale)
        assert ("implicit_grad_norm" in metrics) == (changes["name"] == "prime" and not stale)


def test_only_the_fresh_part_of_a_reply_across_two_versions_is_trained_on(groups):
    def aged(scored):
        turns = [
            dataclasses.replace(turn, reply_versions=(0, *[1] * (len(turn.reply_ids) - 1)))
            for turn in scored.episode.turns
        ]
        return dataclasses.replace(
            scored, episode=dataclasses.replace(scored.episode, turns=tuple(turns))
        )

    mixed = [list(map(aged, group)) for group in groups]
    whole, part = (
        step_samples(mixed, job("ppo", max_staleness=bound), scored, version=1, seed=1).samples
        for bound in (None, 0)
    )
    for sample, rest in zip(whole, part, strict=True):
        new = [place for place, version in enumerate(sample.versions) if version]
        for name in ("sampled_positions", "logprobs", "turns", "versions", "values", "returns"):
            column = getattr(sample, name)
            assert getattr(rest, name) == tuple(column[k] for k in new)
        assert rest.token_ids == sample.token_ids


def resample(returns, valid=None, seed=0, **settings):
    algorithm = load_algorithm(algorithm_config("pf_ppo", **settings))
    return algorithm.resample(returns, valid or [True] * len(returns), seed)


def test_episodes_are_resampled_by_the_size_of_their_return():
    drawn = resample([0.0, 1.0, -3.0, 0.0])
    assert len(drawn) == 4
    assert set(drawn) <= {1, 2}
    assert drawn == resample([0.0, 1.0, -3.0, 0.0])
    many = resample([1.0, -3.0] * 2000)
    assert sum(index % 2 for index in many) / 4000 == pytest.approx(0.75, abs=0.03)
    assert resample([0.0, 0.0]) == [0, 1]


@pytest.mark.parametrize("index", [8, -1, 3])
def test_only_a_valid_episode_can_be_drawn(groups, monkeypatch, index):
    config = job("pf_ppo")
    kind = type(load_algorithm(config.algorithm))
    monkeypatch.setattr(kind, "resample", lambda *arguments: [0, index])
    with pytest.raises(LearnerError, match=rf"pf_ppo: resample\(\) fails.* returned {index}, but"):
        step_samples(groups, config, scored, version=0, seed=1)


def test_void_episodes_are_never_drawn():
    valid = [False, True, True, False]
    assert set(resample([-9.0, 1.0, -3.0, 7.0] * 50, valid * 50)) <= {
        k for k in range(200) if valid[k % 4]
    }
    assert len(resample([-9.0, 1.0, -3.0, 7.0], valid)) == 2
    assert resample([5.0, 0.0, 0.0, 5.0], valid) == [1, 2]
    assert resample([5.0], [False]) == []


def test_void_episodes_are_not_learned_from_by_resampling(make_learner, groups):
    """Void episodes with large returns are neither scored as samples nor in any loss."""
    groups = [
        [
            dataclasses.replace(one, rewards=(9.0,) * len(one.rewards))
            if one.episode.outcome.void
            else one
            for one in group
        ]
        for group in groups
    ]
    config = job("pf_ppo")
    learner = make_learner(config)
    built = step_samples(groups, config, learner.score_tokens, version=0, seed=1)
    void = {
        turn.prompt_ids + turn.reply_ids
        for group in groups
        for one in group
        if one.episode.outcome.void
        for turn in one.episode.turns
    }
    assert built.samples
    assert all(sample.token_ids[: len(ids)] != ids for sample in built.samples for ids in void)
    assert learner.update(built.samples)["optimizer_steps"] == 1


def test_an_episode_drawn_twice_counts_twice(make_learner, groups):
    built = step_samples(groups, job("pf_ppo", resample_power=3.0), scored, version=0, seed=3)
    names = [sample.episode for sample in built.samples]
    assert len(set(names)) == len(names)  # one sample to an episode, and each a name of its own
    assert len({sample.token_ids for sample in built.samples}) < len(names)


@pytest.mark.parametrize(
    ("length", "penalty"), [(5, 0.0), (6, 0.0), (7, -0.25), (8, -0.5), (10, -1.0), (12, -1.0)]
)
def test_overlong_replies_are_penalized(length, penalty):
    assert overlong_penalty(length, 10, 4.0, 1.0) == pytest.approx(penalty)
    assert overlong_penalty(length, 10, 0.0, 1.0) == 0


def test_the_overlong_penalty_is_one_of_the_reward_functions(model_adapter):
    scored = replace(
        scored_episode([turn(reply=range(2, 12)), turn(reply=(2,))], (1.0, 3.0)),
        components={"own": (0.5, 1.5)},
        weights={"own": 2.0},
    )
    settings = OverlongConfig(buffer=0.4, penalty=3.0)
    (shaped,) = penalize_overlong([scored], settings, 10)
    assert shaped.rewards == (-2.0, 3.0)
    assert shaped.by_function() == {"own": (2.0, 2.0), "algorithm.overlong": (3.0, -1.0)}
    plain = replace(scored, weights={})
    (shaped,) = penalize_overlong([plain], settings, 10)
    assert shaped.by_function() == {"": (1.0, 1.0)}


def test_groups_with_different_returns_have_a_learning_signal(groups):
    def kept(group, name, **sampling):
        return load_algorithm(algorithm_config(name, sampling=sampling)).keep_group(group)

    closed = [dataclasses.replace(one, rewards=(1.0, 0.0, 0.0)) for one in groups[0]]
    assert kept(groups[0], "dapo")
    assert not kept(closed, "dapo")
    assert kept(closed, "grpo")
    assert kept(closed, "grpo", filter_means=[0.5, 1.5])
    assert not kept(closed, "grpo", filter_means=[1.5, 2.0])
    apart = [
        dataclasses.replace(
            one,
            components={"a": (float(k), 0.0, 0.0), "b": (0.0, 1.0 - k, 0.0), "c": (k, k, k)},
            weights={"a": 1.0, "b": 1.0, "c": 0.0},
        )
        for k, one in enumerate(closed[:2])
    ]
    assert not kept(apart, "grpo", filter_groups=True)
    assert kept(apart, "gdpo", filter_groups=True)
    alike = [dataclasses.replace(one, components=apart[0].components) for one in apart]
    for equal in (alike, closed):
        assert not kept(equal, "gdpo", filter_groups=True)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "prime"])
def test_returns_that_differ_by_rounding_are_equal(model_adapter, name):
    one, other = (0.1, 0.2, 0.3), (0.3, 0.2, 0.1)
    assert sum(one) != sum(other)
    group = [replace(play(model_adapter, 1, 0), rewards=rewards) for rewards in (one, other)]
    chosen = load_algorithm(job(name, sampling={"filter_groups": True}).algorithm)
    assert not chosen.keep_group(group)
    assert chosen.keep_group([group[0], replace(group[1], rewards=(0.1, 0.2, 0.31))])
    if name != "prime":
        played = build_trajectories([group])
        assert not compute_advantages(played, chosen).advantages.any()


@pytest.mark.parametrize(
    ("fraction", "kept"),
    [(1.0, [0, 1, 2, 3, 4]), (0.5, [1, 3]), (0.6, [0, 1, 3]), (0.1, [3])],
)
def test_the_groups_with_the_largest_standard_deviations_are_kept(model_adapter, fraction, kept):
    # RAGEN, section 3.2: the standard deviation of each group's returns, and the top p of them.
    returns = [[0, 1, 1, 1], [0, 0, 1, 1], [5, 5, 5, 5], [0, 4, 2, 2], [3, 3, 3, 3]]
    one = play(model_adapter, 1, 0)
    assert [round(float(np.std(group)), 3) for group in returns] == [0.433, 0.5, 0, 1.414, 0]
    groups = [[replace(one, rewards=(r, 0.0, 0.0)) for r in group] for group in returns]
    void = replace(one.episode, outcome=Outcome.ENV_ERROR, error="broken")
    groups[4].append(replace(one, rewards=(-99.0, 0.0, 0.0), episode=void))  # does not count
    assert most_varied_groups(groups, fraction) == kept


def test_only_algorithms_that_filter_groups_play_a_step_again():
    class Picky(type(load_algorithm(algorithm_config("grpo")))):
        def keep_group(self, group):
            return len(group) > 2

    assert load_algorithm(algorithm_config("grpo")).attempts == 1
    assert load_algorithm(algorithm_config("dapo", sampling={"refills": 5})).attempts == 6
    assert Picky(algorithm_config("grpo", sampling={"refills": 2})).attempts == 3


def test_tokens_older_than_the_bound_are_stale():
    versions = torch.tensor([7, 6, 5])
    assert is_fresh(versions, 7, 1).tolist() == [True, True, False]
