"""vLLM samples with the probabilities of models of other families, also after new weights."""

import sys
from pathlib import Path

import pytest

from agentrl.policies.chat.chat_encoder import ChatEncoder

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from family_models import build
from model_families import vllm_difference


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize("name", ["Qwen3-MoE", "InternVL 3", "Gemma 2"])
def test_vllm_agrees_also_after_new_weights(name: str, tmp_path: Path) -> None:
    folder = build(name, tmp_path / "model")
    assert vllm_difference(folder, ChatEncoder(folder)) < 1e-3
