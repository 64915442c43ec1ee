"""Models with random weights for the benchmarks on one GPU: nothing is downloaded."""

import json
from pathlib import Path

import torch

from agentrl.policies import tiny_model

LAYERS = 36
TEXT = {
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128000,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e6,
        "mrope_section": [16, 24, 24],
    },
    "tie_word_embeddings": True,
}
VISION = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "out_hidden_size": 2048,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
}
HUNDRED_MILLION: dict[str, int] = {
    "hidden": 768, "layers": 12, "heads": 12, "kv_heads": 4, "intermediate": 2048,
    "vision_hidden": 512, "vision_depth": 8, "vision_heads": 8, "vision_intermediate": 1024,
    "patch": 14, "merge": 2,
}  # fmt: skip
"""Dimensions of the tiny model with a hundred million parameters."""


def build(folder: Path, size: str, device: str, layers: int = LAYERS) -> None:
    """Build a model with random weights in the Hugging Face format.

    Args:
        folder: the model's folder.
        size: `3b`, `100m` or `tiny`.
        device: the device that draws the weights of size 3b.
        layers: number of decoder layers of size 3b.
    """
    tiny_model.build(folder, 0, **(HUNDRED_MILLION if size == "100m" else {}))
    if size != "3b":
        return
    from safetensors.torch import save_file
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    ids = tiny_model.token_ids()
    ends = dict.fromkeys(("bos_token_id", "pad_token_id"), ids["<|endoftext|>"])
    ends["eos_token_id"] = ids["<|im_end|>"]
    config = Qwen2_5_VLConfig(
        text_config={**TEXT, **ends, "num_hidden_layers": layers},
        vision_config=VISION,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
        dtype="bfloat16",
    )
    with torch.device(device):
        model = Qwen2_5_VLForConditionalGeneration._from_config(config, dtype=torch.bfloat16)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    weights = {n: p.detach().cpu() for n, p in model.named_parameters() if n != "lm_head.weight"}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for file in folder.glob("*preprocessor_config.json"):
        settings = {
            "patch_size": 14,
            "merge_size": 2,
            "size": {"shortest_edge": 3136, "longest_edge": 1 << 23},
        }
        file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
