"""The examples of a user's algorithm and loss: they pass the checks, broken copies do not."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
import yaml

from agentrl import cli
from agentrl.check import check_own_classes, checks, findings
from agentrl.config import algorithm_config
from agentrl.errors import AgentRLError, ConfigError
from agentrl.extension_points import LOSS
from tests.algorithms.played import advantages_of, numbers, played

EXTEND = Path(__file__).parents[2] / "examples" / "extend"
ALGORITHM_FILE = EXTEND / "algorithm.py"
LOSS_FILE = EXTEND / "loss.py"


EXAMPLES = {
    "algorithm": (f"{ALGORITHM_FILE}:QuantileAdvantage", "quantile=0.5", "loss.clip_low=0.1"),
    "loss": (f"{LOSS_FILE}:SimplePolicyLoss", "epsilon=0.1"),
}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_the_example_passes_every_check_with_settings_of_its_own(kind):
    target, *settings = EXAMPLES[kind]
    for check in checks(kind, target, *settings):
        check()


@pytest.mark.parametrize(
    ("kind", "setting", "reason"),
    [
        ("algorithm", "quantile=4", "algorithm.quantile=4.0: must be at most 1"),
        ("algorithm", "kl.target=1", "has no effect with algorithm.kl.add_to=none"),
        ("loss", "epsilom=1", "did you mean 'epsilon'"),
        ("loss", "name=ppo", "name=ppo: remove it, since "),
    ],
)
def test_a_wrong_setting_is_a_mistake_in_the_command_not_a_failed_check(kind, setting, reason):
    results = findings(kind, EXAMPLES[kind][0], (setting,), 60.0)
    assert next(results).state == "ok"  # it can be loaded
    with pytest.raises(ConfigError, match=reason):
        next(results)


@pytest.mark.parametrize("name", [extension.name for extension in LOSS.extensions()])
def test_built_in_losses_pass_every_check(name):
    for check in checks("loss", name):
        check()


def test_quantile_advantages_of_a_worked_example():
    name = f"{ALGORITHM_FILE}:QuantileAdvantage"
    hard = played(numbers([0], [0], [0], [1], [0]))  # one success of five: the baseline is 0
    std = 0.2**0.5
    found = advantages_of(hard, name)
    torch.testing.assert_close(found, numbers([0], [0], [0], [1 / std], [0]), atol=1e-5, rtol=0)
    easy = played(numbers([1], [1], [1], [1], [0]))  # four of five: the baseline is 1
    found = advantages_of(easy, name)
    torch.testing.assert_close(found, numbers([0], [0], [0], [0], [-1 / std]), atol=1e-5, rtol=0)
    assert not advantages_of(played(numbers([3])), name).any()


BROKEN = {
    "one number per episode": (
        ALGORITHM_FILE,
        "return played.to_tokens(per_group(compare, played.returns, played.group, played.valid))",
        "return per_group(compare, played.returns, played.group, played.valid)",
        "(Trajectories.to_tokens expands",
    ),
    "void episodes count": (
        ALGORITHM_FILE,
        "played.group, played.valid))",
        "played.group, played.valid | True))",
        "void episodes influence the advantages of others",
    ),
    "no comparison": (
        ALGORITHM_FILE,
        "return (returns - baseline) /",
        "return returns /",
        "it compares episodes, but adding 3 to the last reward of every episode changes advantages",
    ),
    "divides by zero": (
        ALGORITHM_FILE, "returns.std() + EPSILON", "returns.std()", "must be finite, not",
    ),
    "changes its input": (
        ALGORITHM_FILE,
        "def compare(returns",
        "played.rewards.zero_()\n\n        def compare(returns",
        "advantages() changed its input rewards; work on a copy",
    ),
    "invalid default": (
        ALGORITHM_FILE, "Le(1)] = 0.4", "Le(1)] = 4.0", "must be at most 1",
    ),
    "not a dataclass": (
        ALGORITHM_FILE, "    @dataclass(slots=True, kw_only=True)\n", "", "must be decorated with",
    ),
    "unbounded ratio": (
        LOSS_FILE,
        "log_ratio(inputs.logprobs, inputs.old_logprobs).exp()",
        "(inputs.logprobs - inputs.old_logprobs).exp()",
        "the loss is not finite",
    ),
    "depends on the batch": (
        LOSS_FILE, "loss = penalty", "loss = penalty.mean()", "depends on other replies",
    ),
    "no gradient": (LOSS_FILE, ").exp()", ").exp().detach()", "the loss has no gradient"),
    "another shape": (LOSS_FILE, "loss=loss,", "loss=loss.sum(),", "must have shape [", ),
    "idle tokens": (LOSS_FILE, "inputs.advantages.abs()", "1.0", "a token with advantage 0 has"),
}  # fmt: skip


NAMES = {
    ALGORITHM_FILE: ("algorithm", "QuantileAdvantage"),
    LOSS_FILE: ("loss", "SimplePolicyLoss"),
}


@pytest.fixture
def copied(tmp_path):
    """Writes a copy of an example with a text replaced; returns its kind and its target."""

    def write(source, before, after):
        text = source.read_text()
        assert before in text
        name = f"broken_{source.stem}_{abs(hash(after))}"
        (tmp_path / f"{name}.py").write_text(text.replace(before, after))
        written.append(name)
        kind, own = NAMES[source]
        return kind, f"{tmp_path}/{name}.py:{own}"

    written = []
    yield write
    for name in written:
        sys.modules.pop(name, None)
    sys.path[:] = [folder for folder in sys.path if folder != str(tmp_path)]


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_copy_fails_with_a_useful_message(fault, copied):
    *change, said = BROKEN[fault]
    found = findings(*copied(*change), (), 60.0)
    failures = [one.detail for one in found if one.state == "wrong"]
    assert any(said in failure for failure in failures), failures


def test_a_job_s_own_class_is_checked_with_the_job_s_settings(copied):
    changes = {
        "one per token, not []": (LOSS_FILE, "loss=loss,", "loss=loss.sum(),"),
        "set all_tokens = True": (LOSS_FILE, "inputs.advantages.abs()", "1.0"),
        "no attribute 'advantage' (broken_": (LOSS_FILE, "advantages * r", "advantage * r"),
        ", not []": (
            LOSS_FILE, "loss=loss,", "loss=loss if self.config.epsilon == 0.2 else loss.sum(),",
        ),
        "void episodes influence": BROKEN["void episodes count"][:3],
    }  # fmt: skip
    for said, change in changes.items():
        kind, target = copied(*change)
        given = {"loss": {"name": target, "epsilon": 0.3}} if kind == "loss" else {"quantile": 0.3}
        config = algorithm_config("grpo" if kind == "loss" else target, **given)
        with pytest.raises(ConfigError, match=re.escape(said)) as raised:
            check_own_classes(config)
        assert f"{target}: the check '" in str(raised.value)


def test_a_dry_run_checks_the_job_s_own_classes(copied, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _, target = copied(LOSS_FILE, "inputs.advantages.abs()", "self.config.epsilon")
    job = ("rollout.engine=hf", "rollout.launcher=local", "warm_start=null")
    named = f"algorithm.loss.name={target}"
    assert cli.run(["train", "frozen_lake", *job, named, "--dry-run"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"ConfigError: {named}: the check 'Tokens with advantage 0" in printed.err
    stages = [{"name": "rl", "job": "train", "config": "frozen_lake", "warm_start": None}]
    Path("stages.yaml").write_text(yaml.safe_dump({"stages": stages}))
    assert cli.run(["pipeline", "stages.yaml", *job[:2], named, "--dry-run"]) == 2
    printed = capsys.readouterr()
    assert f"ConfigError: {named}: the check 'Tokens with advantage 0" in printed.err


def test_an_exception_of_a_user_s_validate_is_reported_with_its_line(copied):
    _, target = copied(
        LOSS_FILE,
        "    config: Config\n",
        "        def validate(self):\n            self.epsilon.check()\n\n    config: Config\n",
    )
    said = r"loss.name=.*: validate\(\) fails: AttributeError: 'float' .* \(broken_loss_.*py:\d+\)"
    with pytest.raises(ConfigError, match=said):
        algorithm_config("grpo", loss=target)


FAILING = """
import agentrl.algorithms.grpo as grpo


class Raises(grpo.GRPO):
    def advantages(self, played):
        raise ValueError("no baseline")


class ReturnsNothing(grpo.GRPO):
    def advantages(self, played):
        pass
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "Raises",
            r"Raises: advantages\(\) fails: ValueError: no baseline \(failing_algorithm.py:7",
        ),
        ("ReturnsNothing", r"advantages\(\) returned NoneType, but must return a tensor"),
    ],
)
def test_an_algorithm_that_fails_in_a_job_is_named(name, said, tmp_path):
    (tmp_path / "failing_algorithm.py").write_text(FAILING)
    with pytest.raises(AgentRLError, match=said):
        advantages_of(played(numbers([1], [0])), f"{tmp_path}/failing_algorithm.py:{name}")


def test_a_users_algorithm_and_loss_train(tmp_path, monkeypatch):
    """From a folder with nothing but the two files and a configuration."""
    for file in (ALGORITHM_FILE, LOSS_FILE):
        (tmp_path / f"own_{file.name}").write_text(file.read_text())
    job = {
        "model": {"path": "tiny", "tiny": {"hidden": 32, "layers": 2, "heads": 1, "kv_heads": 1}},
        "env": {
            "id": "FrozenLake-v1", "max_turns": 2,
            "translator_kwargs": {"names": ["left", "down", "right", "up"], "text": "square"},
        },
        "rewards": [{"function": "env_reward"}],
        "rollout": {"engine": "hf", "launcher": "local", "groups": 1, "group_size": 4,
                    "concurrency": 4, "max_new_tokens": 4},
        "algorithm": {
            "name": "own_algorithm.py:QuantileAdvantage",
            "quantile": 0.5,
            "loss": {"name": "own_loss.py:SimplePolicyLoss", "epsilon": 0.3},
            "entropy_coefficient": 0.01,
            "minibatch": 4,
        },
        "train": {"steps": 1},
        "eval": {"every": 0, "episodes": 1, "baselines": []},
        "run": {"name": "own", "frames": "none"},
        "logging": ["file"],
    }  # fmt: skip
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert cli.run(["train", "job.yaml"]) == 0
    run = tmp_path / "runs" / "own"
    saved = yaml.safe_load((run / "config.yaml").read_text())["algorithm"]
    assert (saved["quantile"], saved["loss"]["epsilon"]) == (0.5, 0.3)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (step,) = [line for line in lines if line["stage"] == "reinforcement"]
    assert step["learner/optimizer_steps"] >= 1
    assert step["learner/skipped"] == 0
