import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import agentrl
from agentrl import config as configuration
from agentrl import extras, user_code
from agentrl.check import installation
from agentrl.cluster import ray_cluster
from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError
from agentrl.policies.engines.engine import EngineSettings
from agentrl.policies.engines.remote_engine import RemoteEngine
from agentrl.policies.open_engine import check_packages
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.training.plan.job_plan import check_model_play, plan_training


def without(monkeypatch, *names):
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name in names else name)


def test_packages_of_unused_engines_are_not_missing(monkeypatch):
    without(monkeypatch, "vllm", "ray")
    check_packages(RolloutConfig(engine="hf", launcher="local"))


def test_a_remote_model_needs_only_the_http_client(monkeypatch):
    without(monkeypatch, "torch", "vllm", "ray")
    check_packages(RolloutConfig(engine="remote", launcher="ray"))
    without(monkeypatch, "httpx2")
    with pytest.raises(ConfigError) as error:
        check_packages(RolloutConfig(engine="remote", launcher="ray"))
    assert str(error.value) == extras.NO_REMOTE
    with pytest.raises(ConfigError, match=r"agentrl-screens\[remote\]"):
        check_model_play(plan_rollouts(configuration.load("sokoban", ["rollout.engine=remote"])))
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(ConfigError, match=r"agentrl-screens\[remote\]"):
        RemoteEngine(EngineSettings())


def test_all_missing_packages_are_reported_at_once(monkeypatch):
    without(monkeypatch, "torch", "vllm", "ray")
    with pytest.raises(ConfigError) as error:
        plan_training(configuration.load("number_game", ["devices.source=virtual:1"]))
    assert str(error.value) == (
        f"models need packages that are not installed (torch); run: {extras.GET_MODELS}. "
        f"{extras.NO_VLLM}. {extras.NO_RAY}"
    )
    assert "or use rollout.engine=hf" in str(error.value)
    assert "or use rollout.launcher=local" in str(error.value)


def test_plan_doctor_and_cluster_give_the_same_advice(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError) as error:
        ray_cluster.join_cluster()
    assert str(error.value) == extras.NO_RAY
    monkeypatch.setattr(installation, "_version", lambda name: None)
    fixes = {finding.what: finding.fix for finding in installation.examine()}
    assert fixes["ray"] == extras.GET_RAY
    assert fixes["vLLM"] == extras.GET_VLLM
    assert fixes["transformers"] == extras.GET_MODELS
    assert fixes["httpx2"] == extras.GET_REMOTE
    assert fixes["peft"] == extras.GET_LORA
    assert fixes["bitsandbytes"] == extras.GET_QLORA
    assert fixes["flash-attn"] == extras.GET_FLASH
    for package, extra in {"swanlab": "swanlab", "mlflow-skinny": "mlflow"}.items():
        assert fixes[package] == f"pip install 'agentrl-screens[{extra}]'"


ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def needed(extra):
    """What an extra installs, by name, with the extras that it names."""
    found = {}
    for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
        if requirement.name == PROJECT["name"]:
            for other in requirement.extras:
                found |= needed(other)
        found[requirement.name] = requirement.specifier
    return found


def test_no_extra_needs_flash_attn_which_cannot_be_built_without_torch():
    extras_with_it = [e for e in PROJECT["optional-dependencies"] if "flash-attn" in needed(e)]
    assert extras_with_it == ["flash"]
    assert "agentrl-screens[flash]" in extras.GET_FLASH


def test_vllm_and_torch_are_capped_below_their_next_minor_version():
    specifiers = needed("gpu")
    for name, tested, following in (("vllm", "0.32.1", "0.33.0"), ("torch", "2.13.1", "2.14.0")):
        assert tested in specifiers[name]
        assert following not in specifiers[name]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_every_python_has_its_pins_of_the_gpu_stack(python):
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    lines = (ROOT / "requirements" / "gpu.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    pins = [p for p in pins if p.marker is None or p.marker.evaluate({"python_version": python})]
    versions = {pin.name: str(pin.specifier).removeprefix("==") for pin in pins}
    assert len(versions) == len(pins)
    for name, specifier in needed("gpu").items():
        assert name == PROJECT["name"] or versions[name.lower()] in specifier


def test_containers_install_the_pins():
    cpu, gpu = ((ROOT / name).read_text() for name in ("Dockerfile.cpu", "Dockerfile"))
    pins = (ROOT / "requirements" / "cpu.txt").read_text().split()
    for name in ("torch", "torchvision"):
        (pin,) = (p for p in pins if p.startswith(f"{name}=="))
        assert f" {pin}+cpu " in cpu
    assert "-r /tmp/requirements/cpu.txt -c /tmp/requirements/constraints.txt" in cpu
    assert "-r /tmp/requirements/gpu.txt" in gpu


def test_a_missing_package_of_an_environment_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for id, extra in (("MiniGrid-Nowhere-v0", "minigrid"), ("browsergym/nothing", "browsergym")):
        with pytest.raises(ConfigError, match=rf"pip install 'agentrl-screens\[{extra}\]'"):
            agentrl.make(id)
    file = tmp_path / "my_reward.py"
    file.write_text("import pettingzoo\n")
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(
        ConfigError, match=r"my_reward.py: needs pettingzoo, which is not installed"
    ):
        user_code.load(f"{file}:reward")


def test_every_named_extra_exists():
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert set(extras._EXTRAS.values()) <= project["optional-dependencies"].keys()
