"""Models whose files have other names for the weights than transformers has in memory."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from agentrl.config import Config, LoraConfig
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.models import load_model
from agentrl.policies.models.weight_conversion import StoredForm
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.checkpoints.model_export import export_adapters, export_model
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from family_models import build

from agentrl.check.support.model_comparison import episodes

NAMES = [
    "Gemma 3", "InternVL 3", "LLaVA-OneVision", "Phi-4-multimodal", "Qwen2.5-VL", "Qwen3-MoE",
    "Qwen3-VL-MoE",
]  # fmt: skip


@pytest.fixture(scope="module", params=NAMES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(request.param, tmp_path_factory.mktemp("family") / "model")


def test_weights_get_the_names_of_the_models_files(folder: Path) -> None:
    own = {name: p.detach() for name, p in load_model(folder).named_parameters()}
    form, stored = StoredForm(folder, own), load_file(folder / "model.safetensors")
    found = dict(form.convert(own.items()))
    assert list(found) == list(form.layout)
    assert found.keys() == stored.keys()
    assert all(tensor.equal(found[name]) for name, tensor in stored.items())


def test_a_learner_loads_what_transformers_does(folder: Path) -> None:
    expected = load_model(folder)
    learner = Learner(LearnerSettings.of(Config()), folder)
    try:
        module, weights = learner._policy.module, learner.weights()
    finally:
        learner.close()
    for name, parameter in expected.named_parameters():
        assert weights.pop(name).equal(parameter), name
    assert not weights
    for name, buffer in expected.named_buffers():
        assert module.get_buffer(f"policy.{name}").equal(buffer), name


@pytest.mark.quick("Qwen2.5-VL", "Qwen3-VL-MoE")
def test_a_checkpoint_with_adapters_is_merged(folder: Path, tmp_path: Path) -> None:
    check_merged(folder, tmp_path, "float")


@pytest.mark.parametrize("name", ["Gemma 3", "Qwen3-VL-MoE"])
def test_a_checkpoint_with_adapters_of_quantized_weights_is_merged(
    name: str, tmp_path: Path
) -> None:
    check_merged(build(name, tmp_path / "model"), tmp_path, "nf4")


def check_merged(folder: Path, tmp_path: Path, base: Any) -> None:
    config = Config()
    config.optim.lr, config.train.compare_engine = 1e-2, False
    config.model.path = str(folder)
    config.model.lora = LoraConfig(rank=2, base=base)
    learner = Learner(LearnerSettings.of(config), folder)
    try:
        learner.update(episodes(ChatEncoder(folder)), 1)
        learner.save_state(tmp_path / "step-000001" / "learner")
        learner.export(tmp_path / "exported")
    finally:
        learner.close()
    (tmp_path / "step-000001" / "trainer.json").write_text('{"step": 1}')
    checkpoint = tmp_path / "step-000001"
    checkpoint_store.check(checkpoint, folder, config.model.lora)
    merged = tmp_path / "merged"
    export_model(checkpoint, folder, merged, "float32", config.model.lora)
    export_adapters(checkpoint, folder, tmp_path / "adapters", config.model)
    exported, found = (load_file(f / "model.safetensors") for f in (tmp_path / "exported", merged))
    stored = load_file(folder / "model.safetensors")
    assert exported.keys() == found.keys() == stored.keys()
    for name, tensor in exported.items():
        torch.testing.assert_close(tensor, found[name], atol=1e-6, rtol=1e-5)
    assert any(not tensor.equal(stored[name]) for name, tensor in found.items())


def test_an_exported_model_is_loaded_into_a_learner(folder: Path, tmp_path: Path) -> None:
    learner = Learner(LearnerSettings.of(Config()), folder)
    try:
        before = learner.weights()
        learner.export(tmp_path / "exported")
        learner.load_weights(tmp_path / "exported" / "model.safetensors")
        after = learner.weights()
    finally:
        learner.close()
    assert all(tensor.equal(after[name]) for name, tensor in before.items())
