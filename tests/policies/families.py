"""Tiny models of the other model families, with random weights and the tiny model's tokenizer."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from agentrl.policies import tiny_model

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "text")


def build(family: str, tiny_vlm: Path, folder: Path) -> Path:
    """Build a model of the family in a folder."""
    if family == "qwen2_5_vl":
        return tiny_vlm
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tiny_vlm / name, folder / name)
    shutil.copy(tiny_vlm / "generation_config.json", folder / "generation_config.json")
    torch.manual_seed(0)
    model = {
        "qwen2_vl": _qwen2,
        "qwen3_vl": _qwen3,
        "qwen3_vl_moe": partial(_qwen3, moe=True),
        "qwen3_moe": _experts,
        "text": _text,
    }[family]()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(5)  # so that its distributions are peaked
    model.save_pretrained(folder)
    if family == "qwen3_vl_moe":
        _store_experts_as_on_hub(folder / "model.safetensors")
    processor = json.loads((tiny_vlm / "preprocessor_config.json").read_text())
    processor |= {"patch_size": 14, "merge_size": 2}
    if family.startswith("qwen3_vl"):
        processor |= {"patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    if "_vl" in family:
        kind = "Qwen2VLProcessor" if family == "qwen2_vl" else "Qwen3VLProcessor"
        processor["processor_class"] = kind
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def _store_experts_as_on_hub(file: Path) -> None:
    """Transpose them: transformers saves them as they are in memory."""
    weights = {
        name: tensor.mT.contiguous() if ".experts." in name else tensor
        for name, tensor in load_file(file).items()
    }
    save_file(weights, file, metadata={"format": "pt"})


def tie(folder: Path) -> Path:
    """Tie the output head of the model in a folder to its embedding."""
    config = json.loads((folder / "config.json").read_text())
    config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"] = True
    (folder / "config.json").write_text(json.dumps(config))
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _common() -> dict[str, Any]:
    ids = tiny_model.token_ids()
    return {
        "vocab_size": len(ids),
        "hidden_size": 128,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": ids["<|endoftext|>"],
    }


def _placeholders() -> dict[str, int]:
    ids = tiny_model.token_ids()
    return {
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
    }


def _qwen2() -> Any:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]}
    vision = {"depth": 2, "embed_dim": 64, "num_heads": 4, "hidden_size": 128, "mlp_ratio": 2}
    config = Qwen2VLConfig(
        text_config={**_common(), "rope_parameters": rope}, vision_config=vision, **_placeholders()
    )
    return Qwen2VLForConditionalGeneration._from_config(config, dtype=torch.float32)


_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}


def _qwen3(*, moe: bool = False) -> Any:
    import transformers

    family = "Qwen3VLMoe" if moe else "Qwen3VL"
    rope = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "mrope_section": [6, 5, 5],
        "mrope_interleaved": True,
    }
    vision = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 4,
        "out_hidden_size": 128,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0],
    }
    text = {**_common(), "head_dim": 32, "rope_parameters": rope} | (_EXPERTS if moe else {})
    config = getattr(transformers, f"{family}Config")(
        text_config=text, vision_config=vision, **_placeholders()
    )
    model = getattr(transformers, f"{family}ForConditionalGeneration")
    return model._from_config(config, dtype=torch.float32)


def _text() -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM._from_config(Qwen2Config(**_common()), dtype=torch.float32)


def _experts() -> Any:
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(**_common(), **_EXPERTS, head_dim=32)
    return Qwen3MoeForCausalLM._from_config(config, dtype=torch.float32)
