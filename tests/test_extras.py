import sys

import pytest

from agentrl import config as configuration
from agentrl import extras
from agentrl.cli import install_doctor
from agentrl.cluster import ray_cluster
from agentrl.errors import ConfigError
from agentrl.policies.engines.endpoint import Endpoint
from agentrl.training import plan


def without(monkeypatch, *names):
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name in names else name)


def test_nothing_is_missed_where_nothing_is_needed(monkeypatch):
    without(monkeypatch, "vllm", "ray")
    assert extras.missing("hf", "local") == []


def test_a_model_elsewhere_needs_what_asks_for_it_alone(monkeypatch):
    without(monkeypatch, "torch", "vllm", "ray")
    assert extras.missing("remote", "ray") == []
    without(monkeypatch, "httpx2")
    assert extras.missing("remote", "ray") == [extras.NO_REMOTE]
    with pytest.raises(ConfigError, match=r"agentrl\[remote\]"):
        plan.check_player(configuration.load("sokoban", ["rollout.engine=remote"]), None)
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(ConfigError, match=r"agentrl\[remote\]"):
        Endpoint(configuration.EndpointConfig())


def test_everything_that_a_job_misses_is_told_at_once(monkeypatch):
    without(monkeypatch, "torch", "vllm", "ray")
    with pytest.raises(ConfigError) as told:
        plan.check(configuration.load("number_game", ["devices.source=virtual:1"]))
    assert str(told.value) == (
        f"models need torch, not installed: {extras.GET_MODELS}. {extras.NO_VLLM}. {extras.NO_RAY}"
    )
    assert "rollout.engine=hf works without" in str(told.value)
    assert "rollout.launcher=local works without" in str(told.value)


def test_plan_doctor_and_cluster_give_the_same_advice(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError) as told:
        ray_cluster.join_cluster()
    assert str(told.value) == extras.NO_RAY
    monkeypatch.setattr(install_doctor, "_version", lambda name: None)
    mends = {finding.what: finding.mend for finding in install_doctor.examine()}
    assert mends["ray"] == extras.GET_RAY
    assert mends["vLLM"] == extras.GET_VLLM
    assert mends["transformers"] == extras.GET_MODELS
    assert mends["httpx2"] == extras.GET_REMOTE
    assert mends["peft"] == extras.GET_LORA
    assert mends["bitsandbytes"] == extras.GET_QLORA
    assert mends["flash-attn"] == extras.GET_FLASH
    for package, extra in {"swanlab": "swanlab", "mlflow-skinny": "mlflow"}.items():
        assert mends[package] == f"pip install 'agentrl[{extra}]'"
