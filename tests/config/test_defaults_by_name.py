"""The algorithm section: which settings it has, by the names of the algorithm and the loss."""

import dataclasses
import subprocess
import sys

import pytest

from agentrl import config as configuration
from agentrl.config import Config, algorithm_config, algorithm_defaults
from agentrl.errors import ConfigError

OWN = """
from __future__ import annotations

from dataclasses import dataclass

from agentrl.algorithms.core.algorithm import Algorithm
from agentrl.config import AlgorithmConfig


class Margin(Algorithm):
    about = "returns minus a margin"
    source = "none"

    @dataclass(kw_only=True)
    class Config(AlgorithmConfig):
        margin: float = 0.5

    def advantages(self, played):
        return played.to_tokens(played.returns - self.config.margin)


class Undecorated(Margin):
    class Config(AlgorithmConfig):
        margin: float = 0.5


class Unset(Margin):
    @dataclass(kw_only=True)
    class Config(AlgorithmConfig):
        margin: float


class Foreign(Margin):
    Config = dict
"""


def test_an_algorithm_has_its_own_defaults_and_settings():
    config = configuration.from_dict({"algorithm": {"name": "dapo", "loss": {"clip_low": 0.1}}})
    assert (config.algorithm.loss.clip_low, config.algorithm.loss.clip_high) == (0.1, 0.28)
    assert config.algorithm.sampling.filter_groups
    assert algorithm_config("gspo").loss.name == "gspo"
    assert algorithm_config("ppo", critic={"lr": 1.0}).critic.lr == 1
    assert configuration.from_dict(config.to_dict()) == config


def test_a_text_in_place_of_a_section_is_a_name(tmp_path):
    assert configuration.from_dict({"algorithm": "dapo"}).algorithm == algorithm_config("dapo")
    file = tmp_path / "job.yaml"
    file.write_text("algorithm: {name: rloo, loss: gspo, epochs: 2}")
    assert configuration.load(file).algorithm == algorithm_config("rloo", loss="gspo", epochs=2)
    given = ["algorithm=grpo", "algorithm.loss=cispo", "algorithm.loss.clip_low=0.5"]
    found = configuration.load(file, given).algorithm
    assert found == algorithm_config("grpo", loss={"name": "cispo", "clip_low": 0.5}, epochs=2)
    assert configuration.load(file, ["algorithm={loss: sapo}"]).algorithm.loss.tau_negative == 1.05


def test_a_name_may_be_an_interpolation(tmp_path, monkeypatch):
    monkeypatch.setenv("CHOSEN", "ppo")
    file = tmp_path / "job.yaml"
    file.write_text("algorithm: {name: '${oc.env:CHOSEN}', critic: {lr: 0.5}}")
    assert configuration.load(file).algorithm == algorithm_config("ppo", critic={"lr": 0.5})


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"name": "dappo"}, "algorithm.name=dappo: there is no such algorithm (did you mean 'dap"),
        ({"loss": "pppo"}, "algorithm.loss.name=pppo: there is no such loss (did you mean 'ppo'?)"),
        ({"clip_low": 0.1}, "algorithm.clip_low: no such setting"),
        ({"kl": "loss"}, "algorithm.kl: must be a mapping"),
        ({"loss": {"clip_low": -1}}, "algorithm.loss.clip_low=-1.0: must not be below 0"),
        ({"loss": {"clip_dual": 0.0}}, "algorithm.loss.clip_dual=0.0: must be at least 1, or null"),
        ({"loss": {"tau_positive": 1.0}}, "tau_positive: no such setting; algorithm.loss has"),
        ({"gae_lambda": 1.0}, "gae_lambda: no such setting; algorithm has name, loss"),
        ({"name": "ppo", "gae_lambda": 2}, "algorithm.gae_lambda=2.0: must be at most 1"),
        ({"name": "ppo", "critic": {"lr": 0}}, "algorithm.critic.lr=0.0: must be above 0"),
        ({"name": "ppo", "critic": {"clip": 0}}, "algorithm.critic.clip=0.0: must be above 0"),
        ({"kl": {"target": 0}}, "algorithm.kl.target=0.0: must be above 0"),
        ({"overlong": {"buffer": 2}}, "algorithm.overlong.buffer=2.0: must be at most 1"),
        ({"max_staleness": -1}, "algorithm.max_staleness=-1: must not be below 0"),
        ({"epochs": 0}, "algorithm.epochs=0: must be above 0"),
    ],
)
def test_values_that_no_job_can_have_are_rejected(tree, said):
    with pytest.raises(ConfigError) as error:
        configuration.from_dict({"algorithm": tree})
    assert said in str(error.value)


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm=gigpo", "algorithm.state_weight=0.3", "run.folder=x"],
        ["algorithm.state_weight=0.3", "algorithm.name=gigpo", "run.folder=x"],
        ["algorithm.loss=sapo", "algorithm.loss.tau_positive=2", "run.folder=x"],
        ["sampling=solve_rate", "sampling.target=0.3", "run.folder=x"],
    ],
)
def test_a_mistake_elsewhere_is_not_blamed_on_the_settings_of_what_other_overrides_name(overrides):
    with pytest.raises(ConfigError, match=r"^run\.folder=x: no such setting; run has dir, name"):
        configuration.load("number_game", overrides)


def test_a_mistake_in_the_settings_of_what_other_overrides_name_is_blamed_on_it():
    overrides = ["algorithm=gigpo", "algorithm.state_weight=0.3", "algorithm.episode_wait=1"]
    with pytest.raises(ConfigError, match=r"^algorithm\.episode_wait=1: .* 'episode_weight'"):
        configuration.load("number_game", overrides)


@pytest.mark.parametrize(
    ("settings", "rollout", "said"),
    [
        ({"name": "rloo"}, {"group_size": 1}, "rollout.group_size=1: algorithm.name=rloo compares"),
        ({}, {"top_p": 0.9}, "training needs the probabilities of all tokens"),
        ({"name": "remax"}, {"seed_per": "episode"}, "requires rollout.seed_per=group"),
        (
            {"kl": {"add_to": "loss", "coefficient": 0.0}},
            {},
            "coefficient=0: would load a reference",
        ),
        ({"kl": {"coefficient": 0.1}}, {}, "has no effect with algorithm.kl.add_to=none"),
        (
            {"kl": {"target": 0.1}},
            {},
            "set algorithm.kl.add_to=loss or reward, or reset it to null",
        ),
        ({"kl": {"add_to": "reward", "estimate": "k3"}}, {}, "k3: cannot be added to the reward"),
        (
            {"name": "gdpo", "kl": {"add_to": "reward"}},
            {},
            "algorithm.kl.add_to=reward: gdpo normalizes each reward function",
        ),
        ({"sampling": {"filter_means": [1.0]}}, {}, "must be [lowest, highest], or null"),
        (
            {"importance_correction": {"low": 3.0}},
            {},
            "must not be above algorithm.importance_correction.high=2.0",
        ),
    ],
)
def test_settings_that_cannot_learn_are_rejected(settings, rollout, said):
    config = Config(algorithm=algorithm_config(**{"name": "grpo", **settings}))
    for name, value in rollout.items():
        setattr(config.rollout, name, value)
    with pytest.raises(ConfigError) as error:
        config.validate_for_training()
    assert said in str(error.value)


def test_a_single_episode_suffices_if_no_siblings_are_compared():
    for name in ("ppo", "turn_ppo", "reinforce_pp", "remax", "turn_grpo"):
        config = Config(algorithm=algorithm_config(name))
        config.rollout.group_size = 1
        config.validate_for_training()


def test_switching_the_penalty_off_overrides_the_kl_coefficient_of_a_file(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(
        "algorithm: {kl: {add_to: loss, coefficient: 0.04, target: 0.1}, loss: {clip_low: 0.1}}"
    )
    held = configuration.load(file).algorithm.kl
    assert (held.add_to, held.coefficient, held.target) == ("loss", 0.04, 0.1)
    config = configuration.load(file, ["algorithm.kl.add_to=none"])
    assert (config.algorithm.kl.coefficient, config.algorithm.kl.target) == (0.001, None)
    assert config.algorithm.loss.clip_low == 0.1
    config.validate_for_training()
    contradicts = configuration.load(file, ["algorithm.kl={add_to: none, target: 0.2}"])
    with pytest.raises(ConfigError, match=r"kl\.target=0\.2"):
        contradicts.validate_for_training()


def written(tmp_path, *overrides):
    mine = configuration.load("number_game", overrides)
    (tmp_path / "config.yaml").write_text(configuration.to_yaml(mine.to_dict()))
    return mine, tmp_path / "config.yaml"


def test_the_algorithm_of_a_written_configuration_can_be_overridden(tmp_path):
    given = ["algorithm.name=dapo", "algorithm.loss.clip_high=0.5", "algorithm.kl.horizon=7"]
    mine, file = written(tmp_path, *given)
    assert configuration.load(file).algorithm == mine.algorithm
    found = configuration.load(file, ["algorithm.name=ppo"]).algorithm
    expected = configuration.load("number_game", ["algorithm.name=ppo"]).algorithm
    expected.loss.clip_high, expected.kl.horizon = 0.5, 7.0  # they were not dapo's own
    assert found == expected
    assert configuration.resolve(mine, ["algorithm.name=ppo"]).algorithm == found
    back = configuration.resolve(
        Config(algorithm=algorithm_config("ppo", gae_lambda=0.5, discount=0.5)),
        ["algorithm=rloo"],
    )
    assert back.algorithm == algorithm_config("rloo", discount=0.5)


def test_the_loss_of_a_written_configuration_can_be_overridden(tmp_path):
    _, file = written(tmp_path, "algorithm.name=dapo", "algorithm.loss.clip_high=0.5")
    found = configuration.load(file, ["algorithm.loss=cispo"]).algorithm.loss
    assert found == algorithm_config("cispo").loss
    other = configuration.load(file, ["algorithm.name=gspo"]).algorithm
    assert other.loss == algorithm_config("gspo").loss
    _, chosen = written(tmp_path, "algorithm.name=dapo", "algorithm.loss=sapo")
    kept = configuration.load(chosen, ["algorithm.name=rloo"]).algorithm
    assert kept.loss == algorithm_config("sapo").loss


@pytest.fixture
def own(tmp_path):
    (tmp_path / "margin_algorithm.py").write_text(OWN)
    yield tmp_path / "job.yaml"
    sys.modules.pop("margin_algorithm", None)
    sys.path[:] = [folder for folder in sys.path if folder != str(tmp_path)]


def test_a_users_algorithm_is_found_beside_the_configuration(own):
    own.write_text("algorithm: {name: 'margin_algorithm.py:Margin', margin: 0.25}")
    found = configuration.load(own)
    assert found.algorithm.margin == 0.25
    assert configuration.from_dict(found.to_dict()) == found
    overridden = configuration.load(own, ["algorithm=margin_algorithm:Margin"]).algorithm
    assert overridden.margin == 0.25
    assert configuration.load(own, ["algorithm=grpo"]).algorithm == algorithm_config("grpo")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Undecorated", "must be decorated with @dataclass(kw_only=True)"),
        ("Unset", "every setting of its Config needs a default"),
        ("Foreign", "its Config must be a subclass of agentrl.config.AlgorithmConfig"),
        ("Margins", "has no 'Margins' (did you mean 'Margin'?)"),
    ],
)
def test_mistakes_in_a_users_algorithm_are_reported_when_loading(own, name, said):
    own.write_text(f"algorithm: 'margin_algorithm.py:{name}'")
    with pytest.raises(ConfigError) as error:
        configuration.load(own)
    assert said in str(error.value)


def test_every_algorithm_is_configured_without_torch():
    script = (
        "import sys; from agentrl.config import algorithm_defaults\n"
        "from agentrl.extension_points import ALGORITHM\n"
        "for one in ALGORITHM.extensions(): algorithm_defaults(one.name).validate()\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert dataclasses.is_dataclass(algorithm_defaults())


def test_an_override_of_the_cache_alone_starts_no_warm_start():
    for cache in ("null", "/somewhere"):
        assert (
            configuration.load(
                "sokoban", ["warm_start=null", f"warm_start.cache={cache}"]
            ).warm_start
            is None
        )
    config = configuration.resolve(Config(), ["warm_start.cache=null"])
    assert config.warm_start is None
    with pytest.raises(ConfigError, match=r"warm_start\.cache"):
        configuration.resolve(Config(), ["warm_start.cache=[1]"])
    for more in (["warm_start.steps=3"], ["warm_start={}"]):
        started = configuration.resolve(Config(), [*more, "warm_start.cache=null"]).warm_start
        assert started is not None
        assert started.cache is None
    assert (
        configuration.load("frozen_lake", ["warm_start.cache=null"]).warm_start.player == "random"
    )
