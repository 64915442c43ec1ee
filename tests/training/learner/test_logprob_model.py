import importlib

import numpy as np
import pytest
import torch

from agentrl.policies.models.families.qwen_vl import PatchLayout, QwenVL
from agentrl.policies.models.families.text import Text
from agentrl.training.learner.network.logprob_model import LogprobModel
from agentrl.types import Batch

IMAGE = 300


def tiny_qwen3():
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    text = {
        "vocab_size": 320,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "rope_parameters": {
            "rope_type": "default",
            "mrope_section": [4, 2, 2],
            "rope_theta": 1e4,
        },
    }
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": 14,
        "out_hidden_size": 32,
        "deepstack_visual_indexes": [0],
        "num_position_embeddings": 64,
    }
    config = Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=301,
        vision_start_token_id=302,
        vision_end_token_id=303,
    )
    torch.manual_seed(0)
    return Qwen3VLForConditionalGeneration._from_config(config)


def test_a_shared_image_with_deepstack_features_gives_the_same_gradient():
    patching = PatchLayout(patch=14, merge=2, temporal=2, mean=(0.0,) * 3, std=(1.0,) * 3)
    adapter = QwenVL(
        image_token_id=IMAGE,
        vision_start_id=302,
        vision_end_id=303,
        banned_token_ids=(IMAGE,),
        patching=patching,
    )
    scorer = LogprobModel(tiny_qwen3(), adapter)
    ids = torch.randint(0, 290, (2, 20))
    ids[:, 2:8] = IMAGE
    picture = torch.randint(0, 256, (24, 3 * 14 * 14), dtype=torch.uint8)
    grid = torch.tensor([[1, 4, 6]])
    places = torch.arange(16, 20)
    sources = torch.cat([places - 1, places - 1 + 20])

    def run(**pixels):
        batch = Batch(
            token_ids=ids,
            positions=torch.arange(20).expand(3, 2, 20),
            subtree_ends=torch.full((2, 20), 20),
            has_branches=False,
            logit_positions=sources,
            targets=ids.flatten()[sources + 1],
            last_positions=torch.tensor([19, 39]),
            turns=torch.zeros(8, dtype=torch.long),
            logprobs=torch.zeros(0),
            weights=torch.zeros(0),
            pixels=pixels,
        )
        logprobs = scorer(batch, 1.0).logprobs
        logprobs.sum().backward()
        gradient = {n: p.grad for n, p in scorer.named_parameters() if p.grad is not None}
        scorer.zero_grad()
        return logprobs.detach(), gradient

    twice = run(
        pixel_values=torch.cat([picture, picture]),
        image_grid_thw=grid.repeat(2, 1),
        image_tokens=torch.tensor([6, 6]),
    )
    once = run(
        pixel_values=picture,
        image_grid_thw=grid,
        image_tokens=torch.tensor([6]),
        image_index=torch.tensor([0, 0]),
    )
    assert any("visual" in name for name in once[1])
    torch.testing.assert_close(once, twice, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_positions_are_those_of_the_model_itself(family, model_adapter):
    config = type("C", (), {"vision_config": type("V", (), {"spatial_merge_size": 1,
                            "tokens_per_second": 4})()})()  # fmt: skip
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, (28 * h, 28 * w, 3), np.uint8) for h, w in ((2, 3), (4, 1))]
    ids = [
        1,
        2,
        *model_adapter.image_markup(images[0]),
        3,
        4,
        *model_adapter.image_markup(images[1]),
        5,
    ]
    inputs = model_adapter.forward_inputs(
        torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool), images
    )
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    name = {"qwen2_5_vl": "Qwen2_5_VLModel", "qwen3_vl": "Qwen3VLModel"}[family]
    model = getattr(module, name).__new__(getattr(module, name))
    torch.nn.Module.__init__(model)
    model.config = config
    theirs, _ = model.get_rope_index(
        inputs["input_ids"], inputs["mm_token_type_ids"], inputs["image_grid_thw"]
    )
    assert model_adapter.positions(ids, images).tolist() == theirs[:, 0].tolist()
    assert Text().positions([7, 8, 9], []).tolist() == [0, 1, 2]
