import sys

import pytest

from agentrl import config as configuration
from agentrl import extras
from agentrl.cli import install_doctor
from agentrl.cluster import ray_cluster
from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError
from agentrl.policies.engines.endpoint import Endpoint
from agentrl.policies.open_model import check_packages
from agentrl.training import preflight


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
        preflight.check(configuration.load("sokoban", ["rollout.engine=remote"]), learns=False)
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(ConfigError, match=r"agentrl-screens\[remote\]"):
        Endpoint(configuration.EndpointConfig())


def test_all_missing_packages_are_reported_at_once(monkeypatch):
    without(monkeypatch, "torch", "vllm", "ray")
    with pytest.raises(ConfigError) as error:
        preflight.check(configuration.load("number_game", ["devices.source=virtual:1"]))
    assert str(error.value) == (
        f"models need torch, not installed: {extras.GET_MODELS}. {extras.NO_VLLM}. {extras.NO_RAY}"
    )
    assert "rollout.engine=hf works without" in str(error.value)
    assert "rollout.launcher=local works without" in str(error.value)


def test_plan_doctor_and_cluster_give_the_same_advice(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError) as error:
        ray_cluster.join_cluster()
    assert str(error.value) == extras.NO_RAY
    monkeypatch.setattr(install_doctor, "_version", lambda name: None)
    fixes = {finding.what: finding.fix for finding in install_doctor.examine()}
    assert fixes["ray"] == extras.GET_RAY
    assert fixes["vLLM"] == extras.GET_VLLM
    assert fixes["transformers"] == extras.GET_MODELS
    assert fixes["httpx2"] == extras.GET_REMOTE
    assert fixes["peft"] == extras.GET_LORA
    assert fixes["bitsandbytes"] == extras.GET_QLORA
    assert fixes["flash-attn"] == extras.GET_FLASH
    for package, extra in {"swanlab": "swanlab", "mlflow-skinny": "mlflow"}.items():
        assert fixes[package] == f"pip install 'agentrl-screens[{extra}]'"
