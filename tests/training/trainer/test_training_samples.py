"""Every algorithm, from scored episodes with images to an update of the model."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from agentrl import config as configuration
from agentrl.algorithms import episode_selection
from agentrl.config import PRESETS, AlgorithmConfig, Config, algorithm_presets
from agentrl.errors import ConfigError
from agentrl.types import Outcome, TokenScores
from tests.training.episodes import play
from tests.training.samples import step_samples

NUMBERS = ("loss", "grad_norm", "entropy", "approx_kl", "kl", "value_loss", "implicit_grad_norm")


@pytest.fixture(scope="module")
def groups(model_adapter):
    ends = [Outcome.TERMINATED, Outcome.TRUNCATED, Outcome.TERMINATED, Outcome.DEVICE_ERROR]
    return [[play(model_adapter, seed, m, end) for m, end in enumerate(ends)] for seed in range(2)]


def preset(name, **changes):
    config = Config(algorithm=AlgorithmConfig(name=name, **changes))
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
        kl_coefficient=config.algorithm.kl_coefficient,
    )  # fmt: skip
    metrics = learner.update(built.samples)
    return learner, built, metrics


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_learns_at_its_defaults(make_learner, groups, name):
    config = preset(name)
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


@pytest.mark.parametrize("name", PRESETS)
def test_micro_batches_and_shared_prefixes_do_not_change_the_update(make_learner, groups, name):
    """Law 2, and that nothing of the packing is an approximation."""
    extra = {"kl": "loss", "kl_coefficient": 0.1, "entropy_coefficient": 0.01}
    extra |= {"importance_correction": "sequence_truncate"}
    found = []
    for budget, share in itertools.product((1, 150, 100_000), (False, True)):
        config = preset(name, **extra)
        config.train.micro_batch_tokens, config.train.share_prefixes = budget, share
        _, _, metrics = learn(make_learner, config, groups)
        found.append([metrics[k] for k in NUMBERS if k in metrics])
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=2e-4, abs=1e-6)


def test_kl_in_the_reward_lowers_the_advantage_of_diverging_tokens(make_learner, groups):
    config = preset("reinforce_pp", kl="reward", kl_estimate="k1", kl_coefficient=0.5, epochs=2)
    learner, _, _ = learn(make_learner, config, groups)
    built = step_samples(
        groups, config, learner.score_tokens, version=1, seed=1, kl_coefficient=0.5
    )
    assert learner.update(built.samples)["kl"] != 0
    # the loss compares with what sampled the tokens, as it does without a divergence
    assert all(sample.old_logprobs == sample.logprobs for sample in built.samples)
    free = preset("reinforce_pp")
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
        {"name": "grpo", "kl": "loss", "kl_coefficient": 0.1},
        {"name": "grpo", "importance_correction": "token_mask"},
    ],
)
def test_stale_tokens_are_in_no_loss(make_learner, groups, changes):
    learner = make_learner(preset(max_staleness=1, **changes))
    for version, stale in ((1, 0.0), (2, 1.0)):
        built = step_samples(groups, learner._config, learner.score_tokens, version=version, seed=1)
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
        step_samples(mixed, preset("ppo", max_staleness=bound), scored, version=1, seed=1).samples
        for bound in (-1, 0)
    )
    for sample, rest in zip(whole, part, strict=True):
        new = [place for place, version in enumerate(sample.versions) if version]
        for name in ("sampled_positions", "logprobs", "turns", "versions", "values", "returns"):
            column = getattr(sample, name)
            assert getattr(rest, name) == tuple(column[k] for k in new)
        assert rest.token_ids == sample.token_ids


def test_episodes_are_resampled_by_the_size_of_their_return():
    drawn = episode_selection.resample([0.0, 1.0, -3.0, 0.0], 1.0, seed=0)
    assert len(drawn) == 4
    assert set(drawn) <= {1, 2}
    assert drawn == episode_selection.resample([0.0, 1.0, -3.0, 0.0], 1.0, seed=0)
    many = episode_selection.resample([1.0, -3.0] * 2000, 1.0, seed=0)
    assert sum(index % 2 for index in many) / 4000 == pytest.approx(0.75, abs=0.03)
    assert episode_selection.resample([0.0, 0.0], 1.0, seed=0) == [0, 1]
    assert episode_selection.resample([1.0, 2.0], 0.0, seed=0) == [0, 1]


def test_an_episode_drawn_twice_counts_twice(make_learner, groups):
    built = step_samples(
        groups, preset("grpo", resample_power=3.0), lambda samples: [], version=0, seed=3
    )
    names = [sample.episode for sample in built.samples]
    assert len(set(names)) == len(names)  # one sample to an episode, and each a name of its own
    assert len({sample.token_ids for sample in built.samples}) < len(names)


@pytest.mark.parametrize(
    ("length", "penalty"), [(5, 0.0), (6, 0.0), (7, -0.25), (8, -0.5), (10, -1.0), (12, -1.0)]
)
def test_overlong_replies_are_penalized(length, penalty):
    assert episode_selection.overlong_penalty(length, 10, 4.0, 1.0) == pytest.approx(penalty)
    assert episode_selection.overlong_penalty(length, 10, 0.0, 1.0) == 0


def test_groups_with_different_returns_have_a_learning_signal(groups):
    config = preset("dapo")
    closed = [dataclasses.replace(one, rewards=(1.0, 0.0, 0.0)) for one in groups[0]]
    assert episode_selection.has_learning_signal(groups[0], config.algorithm)
    assert not episode_selection.has_learning_signal(closed, config.algorithm)
    assert episode_selection.has_learning_signal(closed, preset("grpo").algorithm)
    assert episode_selection.has_learning_signal(
        closed, preset("grpo", filter_means=[0.5, 1.5]).algorithm
    )
    assert not episode_selection.has_learning_signal(
        closed, preset("grpo", filter_means=[1.5, 2.0]).algorithm
    )


def test_a_preset_sets_only_what_the_user_did_not():
    config = configuration.from_dict({"algorithm": {"name": "dapo", "clip_low": 0.1}})
    assert (config.algorithm.clip_low, config.algorithm.clip_high) == (0.1, 0.28)
    assert config.algorithm.filter_groups
    assert AlgorithmConfig(name="gspo").loss == "gspo"
    assert configuration.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"name": "dappo"}, "algorithm.name='dappo': no such algorithm (did you mean 'dapo'?)"),
        ({"estimator": "grp"}, "algorithm.estimator: must be one of 'grpo', "),
        ({"clip_low": -1}, "algorithm.clip_low=-1.0: must not be below 0"),
        ({"gae_lambda": 2}, "algorithm.gae_lambda=2.0: must be at most 1"),
        ({"epochs": 0}, "algorithm.epochs=0: must be above 0"),
    ],
)
def test_contradictory_settings_are_rejected(tree, said):
    with pytest.raises(ConfigError) as error:
        configuration.from_dict({"algorithm": tree})
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("settings", "rollout", "said"),
    [
        ({"name": "rloo"}, {"group_size": 1}, "rollout.group_size=1: algorithm.estimator=rloo"),
        ({"name": "remax"}, {"seed_per": "episode"}, "set rollout.seed_per=group"),
        ({"kl": "loss", "kl_coefficient": 0.0}, {}, "kl_coefficient=0 loads a reference"),
        (
            {"kl_coefficient": 0.1},
            {},
            "kl_coefficient=0.1: has no effect with algorithm.kl=none",
        ),
        ({"kl_target": 0.1}, {}, "set algorithm.kl=loss or reward, or leave it at 0.0"),
        ({"filter_means": [1.0]}, {}, "must be [lowest, highest]"),
        ({"importance_low": 3.0}, {}, "must not be above algorithm.importance_high=2.0"),
        ({"max_staleness": -2}, {}, "must be at least 0, or -1 for no limit"),
        ({"clip_dual": 0.0}, {}, "algorithm.clip_dual=0.0: must be at least 1"),
    ],
)
def test_settings_that_cannot_learn_are_rejected(settings, rollout, said):
    config = Config(algorithm=AlgorithmConfig(**settings))
    for name, value in rollout.items():
        setattr(config.rollout, name, value)
    with pytest.raises(ConfigError) as error:
        config.validate_for_training()
    assert said in str(error.value)


def test_the_kl_coefficient_of_a_preset_may_stay_if_kl_is_none(monkeypatch):
    held = dataclasses.replace(PRESETS["grpo"], settings={"kl": "loss", "kl_coefficient": 0.04})
    monkeypatch.setattr(algorithm_presets, "PRESETS", {**PRESETS, "grpo": held})
    configuration.load("number_game", ["algorithm.name=grpo"]).validate_for_training()
    switched_off = configuration.load("number_game", ["algorithm={name: grpo, kl: none}"])
    assert switched_off.algorithm.kl_coefficient == 0.04
    switched_off.validate_for_training()


def test_setting_kl_none_overrides_the_kl_coefficient_of_a_file(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("algorithm: {kl: loss, kl_coefficient: 0.04, kl_target: 0.1, clip_low: 0.1}")
    held = configuration.load(file).algorithm
    assert (held.kl, held.kl_coefficient, held.kl_target) == ("loss", 0.04, 0.1)
    config = configuration.load(file, ["algorithm.kl=none"])
    assert (config.algorithm.kl_coefficient, config.algorithm.kl_target) == (0.001, 0.0)
    assert config.algorithm.clip_low == 0.1
    config.validate_for_training()
    contradicts = configuration.load(file, ["algorithm.kl=none", "algorithm.kl_target=0.2"])
    with pytest.raises(ConfigError, match=r"kl_target=0\.2"):
        contradicts.validate_for_training()


def test_a_single_episode_suffices_if_no_siblings_are_compared():
    for name in ("ppo", "turn_ppo", "reinforce_pp", "remax", "turn_grpo"):
        config = Config(algorithm=AlgorithmConfig(name=name))
        config.rollout.group_size = 1
        config.validate_for_training()


def test_the_algorithm_of_a_written_configuration_can_be_overridden(tmp_path):
    mine = configuration.load("number_game", ["algorithm.name=dapo", "algorithm.clip_high=0.5"])
    (tmp_path / "config.yaml").write_text(configuration.to_yaml(mine))
    same = configuration.load(tmp_path / "config.yaml").algorithm
    assert same == mine.algorithm
    found = configuration.load(tmp_path / "config.yaml", ["algorithm.name=ppo"]).algorithm
    plain = configuration.load("number_game", ["algorithm.name=ppo"]).algorithm
    assert found.estimator == plain.estimator != mine.algorithm.estimator
    assert found == dataclasses.replace(plain, clip_high=0.5)  # it was not dapo's own
    assert configuration.resolve(mine, ["algorithm.name=ppo"]).algorithm == found
