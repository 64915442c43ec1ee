import torch

from agentrl.policies import companions
from agentrl.training.scorer import TokenScorer
from agentrl.types import Batch

IMAGE = 300


def tiny_qwen3():
    companions.mend()
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


def test_a_shared_picture_of_a_tower_with_deep_features_gives_the_same_gradient():
    scorer = TokenScorer(tiny_qwen3(), [IMAGE])
    ids = torch.randint(0, 290, (2, 20))
    ids[:, 2:8] = IMAGE
    sampled = torch.zeros(2, 20, dtype=torch.bool)
    sampled[:, -4:] = True
    picture, grid = torch.randn(24, 3 * 2 * 14 * 14), torch.tensor([[1, 4, 6]])

    def run(**pixels):
        batch = Batch(
            token_ids=ids,
            attention_mask=torch.ones(2, 20, dtype=torch.bool),
            loss_mask=sampled,
            logprobs=torch.zeros(2, 20),
            advantages=torch.zeros(2, 20),
            pixels={"mm_token_type_ids": (ids == IMAGE).int(), **pixels},
        )
        logprobs = scorer(batch, 1.0).logprobs
        logprobs.sum().backward()
        gradient = {n: p.grad for n, p in scorer.named_parameters() if p.grad is not None}
        scorer.zero_grad()
        return logprobs.detach(), gradient

    twice = run(pixel_values=torch.cat([picture, picture]), image_grid_thw=grid.repeat(2, 1))
    once = run(pixel_values=picture, image_grid_thw=grid, image_index=torch.tensor([0, 0]))
    assert any("visual" in name for name in once[1])
    torch.testing.assert_close(once, twice, rtol=1e-4, atol=1e-5)
