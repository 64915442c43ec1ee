"""Tiny models of every family, with random weights and the family's special tokens and template.

The architectures are transformers' own, built from their configuration classes. Vocabularies are
small: bytes, a few merged pieces and the family's special tokens.
"""

# ruff: noqa: RUF001 (DeepSeek's tokens contain full-width bars)
from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

TEMPLATES = Path(__file__).parent / "chat_templates"
_PIECES = ("\n\n", "\n\n\n", "he", "in", " t", "::")
"""Merged pieces, so that encoding texts together differs from encoding them separately."""
_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_QWEN = (
    *_CHATML, "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>",
    "<|video_pad|>",
)  # fmt: skip
_LLAMA = (
    "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
    "<|eot_id|>",
)  # fmt: skip
_DEEPSEEK = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>")
_PHI = (
    "<|endoftext|>", "<|image|>", "<|audio|>", "<|assistant|>", "<|end|>", "<|user|>",
    "<|system|>", "<|tool|>", "<|/tool|>",
)  # fmt: skip
_GEMMA = (
    "<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>",
    "<end_of_image>", "<image_soft_token>",
)  # fmt: skip


@dataclass(slots=True, kw_only=True, frozen=True)
class Family:
    """How to build a tiny model of a family."""

    template: str
    """Name of a template file in `TEMPLATES`."""
    special: tuple[str, ...]
    """Special tokens of the tokenizer."""
    model: Callable[[dict[str, int]], Any]
    """Creates the model, given the tokenizer's ids."""
    eos: str
    bos: str | None = None
    plain: tuple[str, ...] = ()
    """Added tokens, matched before all others, that are not special."""
    named: Mapping[str, str] = field(default_factory=dict)
    """Special tokens by the processor's name for them."""
    processor: Callable[[Any], Any] | None = None
    """Creates the processor, given the tokenizer; None for a text-only model."""


def build(name: str, folder: Path) -> Path:
    """Build the model of a family in a folder.

    Args:
        name: name of the family in `FAMILIES`.
        folder: folder to create.
    """
    family = FAMILIES[name]
    tokenizer = _tokenizer(family)
    ids = tokenizer.get_vocab()
    torch.manual_seed(0)
    model = family.model(ids).to(torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and not parameter.any():
                parameter.normal_(0, 0.2)  # projectors start at zero
            elif parameter.dim() > 1:
                parameter.mul_(3)  # makes distributions peaked
    model.generation_config.eos_token_id = [ids[family.eos]]
    model.save_pretrained(folder)
    _store_as_on_hub(folder / "model.safetensors", model.config.model_type)
    shutil.copyfile(TEMPLATES / f"{family.template}.jinja", folder / "chat_template.jinja")
    tokenizer.chat_template = (folder / "chat_template.jinja").read_text()
    tokenizer.save_pretrained(folder)
    if family.processor is not None:
        processor = family.processor(tokenizer)
        processor.chat_template = tokenizer.chat_template
        processor.save_pretrained(folder)
    return folder


def _store_as_on_hub(file: Path, model_type: str) -> None:
    """Convert weights to the Hub's names and shapes where transformers saves them differently."""
    weights = load_file(file)
    if any(name.startswith("vision_tower.encoder.layers") for name in weights):
        weights = {
            name.replace("vision_tower.", "vision_tower.vision_model.", 1): tensor
            for name, tensor in weights.items()
        }
    if model_type == "qwen3_vl_moe":
        weights = {
            name: tensor.mT.contiguous() if ".experts." in name else tensor
            for name, tensor in weights.items()
        }
    save_file(weights, file, metadata={"format": "pt"})


def _tokenizer(family: Family) -> Any:
    """Create a byte-level tokenizer with a few merged pieces and the family's tokens."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: id for id, letter in enumerate(letters)}
    merges = []
    for piece in _PIECES:
        ((spelled, _),) = level.pre_tokenize_str(piece)
        merges.append((spelled[:-1], spelled[-1]))
        vocabulary[spelled] = len(vocabulary)
    plain = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    plain.pre_tokenizer, plain.decoder = level, decoders.ByteLevel()
    plain.add_special_tokens([AddedToken(t, normalized=False) for t in family.special])
    plain.add_tokens([AddedToken(t, normalized=False) for t in family.plain])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain,
        bos_token=family.bos,
        eos_token=family.eos,
        pad_token=family.special[0],
        extra_special_tokens=dict(family.named),
        clean_up_tokenization_spaces=False,
    )


def _text(ids: dict[str, int], **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(ids), "hidden_size": 64, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 32, "max_position_embeddings": 4096, "pad_token_id": None,
        "bos_token_id": None, "eos_token_id": None, "tie_word_embeddings": False, **more,
    }  # fmt: skip


def _causal(config: str, model: str, **more: Any) -> Callable[[dict[str, int]], Any]:
    def built(ids: dict[str, int]) -> Any:
        settings = getattr(transformers, config)(**_text(ids, **more))
        return getattr(transformers, model)._from_config(settings, dtype=torch.float32)

    return built


def _qwen_vl(
    kind: str, vision: dict[str, Any], sections: list[int], **more: Any
) -> Callable[[dict[str, int]], Any]:
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections}

    def built(ids: dict[str, int]) -> Any:
        if kind.startswith("Qwen3"):
            rope["mrope_interleaved"] = True
        config = getattr(transformers, f"{kind}Config")(
            text_config=_text(ids, rope_parameters=rope, **more),
            vision_config=vision,
            image_token_id=ids["<|image_pad|>"],
            video_token_id=ids["<|video_pad|>"],
            vision_start_token_id=ids["<|vision_start|>"],
            vision_end_token_id=ids["<|vision_end|>"],
            tie_word_embeddings=False,
        )
        model = getattr(transformers, f"{kind}ForConditionalGeneration")
        return model._from_config(config, dtype=torch.float32)

    return built


def _qwen_processor(kind: str, patch: int, mean: float) -> Callable[[Any], Any]:
    def built(tokenizer: Any) -> Any:
        size = {"shortest_edge": (2 * patch) ** 2, "longest_edge": 1024 * (2 * patch) ** 2}
        shared = {"patch_size": patch, "merge_size": 2, "image_mean": [mean] * 3, "size": size}
        version = "Qwen3VL" if kind == "Qwen3VL" else "Qwen2VL"
        return getattr(transformers, f"{kind}Processor")(
            image_processor=transformers.Qwen2VLImageProcessor(**shared),
            tokenizer=tokenizer,
            video_processor=getattr(transformers, f"{version}VideoProcessor")(**shared),
        )

    return built


_QWEN2_VISION = {"depth": 2, "embed_dim": 32, "num_heads": 2, "hidden_size": 64, "mlp_ratio": 2}
_QWEN25_VISION = {
    "depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 64, "out_hidden_size": 64,
    "window_size": 56, "fullatt_block_indexes": [1],
}  # fmt: skip
_QWEN3_VISION = {
    "depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 64, "out_hidden_size": 64,
    "num_position_embeddings": 64, "deepstack_visual_indexes": [0],
}  # fmt: skip
_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "norm_topk_prob": True,
}


_GEMMA_LAYERS: dict[str, Any] = {
    "sliding_window": 16, "query_pre_attn_scalar": 32,
    "layer_types": ["sliding_attention", "full_attention"], "tie_word_embeddings": True,
}  # fmt: skip


def _gemma3(ids: dict[str, int]) -> Any:
    vision = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "image_size": 56, "patch_size": 14, "vision_use_head": False,
    }  # fmt: skip
    config = transformers.Gemma3Config(
        text_config=_text(ids, **_GEMMA_LAYERS),
        vision_config=vision,
        mm_tokens_per_image=4,
        boi_token_index=ids["<start_of_image>"],
        eoi_token_index=ids["<end_of_image>"],
        image_token_index=ids["<image_soft_token>"],
    )
    return transformers.Gemma3ForConditionalGeneration._from_config(config, dtype=torch.float32)


def _gemma3_processor(tokenizer: Any) -> Any:
    image = transformers.Gemma3ImageProcessor(size={"height": 56, "width": 56})
    return transformers.Gemma3Processor(image, tokenizer, image_seq_length=4)


def _internvl(ids: dict[str, int]) -> Any:
    vision = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "image_size": [56, 56], "patch_size": [14, 14],
    }  # fmt: skip
    config = transformers.InternVLConfig(
        text_config={"model_type": "qwen2", **_text(ids)},
        vision_config=vision,
        image_token_id=ids["<IMG_CONTEXT>"],
        image_seq_length=4,
        tie_word_embeddings=False,
    )
    return transformers.InternVLForConditionalGeneration._from_config(config, dtype=torch.float32)


def _internvl_processor(tokenizer: Any) -> Any:
    size = {"height": 56, "width": 56}
    return transformers.InternVLProcessor(
        image_processor=transformers.GotOcr2ImageProcessor(size=size, max_patches=4),
        tokenizer=tokenizer,
        video_processor=transformers.InternVLVideoProcessor(size=size),
        image_seq_length=4,
    )


_PINPOINTS = [[56, 56], [56, 112], [112, 56], [112, 112]]


def _llava_onevision(ids: dict[str, int]) -> Any:
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 56, "patch_size": 14,
        "vision_use_head": False,
    }  # fmt: skip
    config = transformers.LlavaOnevisionConfig(
        text_config={"model_type": "qwen2", **_text(ids)},
        vision_config=vision,
        image_token_index=ids["<image>"],
        video_token_index=ids["<video>"],
        image_grid_pinpoints=_PINPOINTS,
        tie_word_embeddings=False,
    )
    model = transformers.LlavaOnevisionForConditionalGeneration
    return model._from_config(config, dtype=torch.float32)


def _llava_processor(tokenizer: Any) -> Any:
    size = {"height": 56, "width": 56}
    return transformers.LlavaOnevisionProcessor(
        image_processor=transformers.LlavaOnevisionImageProcessor(
            size=size, image_grid_pinpoints=_PINPOINTS
        ),
        tokenizer=tokenizer,
        video_processor=transformers.LlavaOnevisionVideoProcessor(size=size),
        num_image_tokens=16,
        vision_feature_select_strategy="full",
    )


def _llava(ids: dict[str, int]) -> Any:
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 56, "patch_size": 14,
        "vision_use_head": False,
    }  # fmt: skip
    config = transformers.LlavaConfig(
        text_config={"model_type": "qwen2", **_text(ids)},
        vision_config=vision,
        image_token_index=ids["<image>"],
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
        tie_word_embeddings=False,
    )
    return transformers.LlavaForConditionalGeneration._from_config(config, dtype=torch.float32)


def _llava_simple_processor(tokenizer: Any) -> Any:
    size = {"height": 56, "width": 56}
    image = transformers.SiglipImageProcessor(size=size)
    return transformers.LlavaProcessor(
        image, tokenizer, patch_size=14, vision_feature_select_strategy="full"
    )


def _phi4_multimodal(ids: dict[str, int]) -> Any:
    vision = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "image_token_id": ids["<|image|>"],
    }  # fmt: skip
    audio = {
        "hidden_size": 32, "intermediate_size": 32, "num_blocks": 2, "num_attention_heads": 2,
        "ext_pw_out_channel": 32, "depthwise_separable_out_channel": 32, "nemo_conv_channels": 32,
        "audio_token_id": ids["<|audio|>"],
    }  # fmt: skip
    settings = _text(ids, pad_token_id=0, vision_config=vision, audio_config=audio)
    settings["eos_token_id"] = [ids["<|end|>"]]
    config = transformers.Phi4MultimodalConfig(**settings)
    return transformers.Phi4MultimodalForCausalLM._from_config(config, dtype=torch.float32)


def _phi4_multimodal_processor(tokenizer: Any) -> Any:
    return transformers.Phi4MultimodalProcessor(
        transformers.Phi4MultimodalImageProcessor(),
        transformers.Phi4MultimodalFeatureExtractor(),
        tokenizer,
    )


_QWEN_TEXT: dict[str, Any] = {"special": _CHATML, "eos": "<|im_end|>"}
_QWEN_VL: dict[str, Any] = {"special": _QWEN, "eos": "<|im_end|>"}
_LLAMA_TEXT: dict[str, Any] = {
    "special": _LLAMA, "bos": "<|begin_of_text|>", "eos": "<|eot_id|>",
    "model": _causal("LlamaConfig", "LlamaForCausalLM"),
}  # fmt: skip
_GEMMA_TEXT: dict[str, Any] = {"special": _GEMMA[:5], "bos": "<bos>", "eos": "<end_of_turn>"}

FAMILIES = {
    "Qwen2-VL": Family(
        template="qwen2_5_vl",
        model=_qwen_vl("Qwen2VL", _QWEN2_VISION, [4, 6, 6]),
        processor=_qwen_processor("Qwen2VL", 14, 0.48),
        **_QWEN_VL,
    ),
    "Qwen2.5-VL": Family(
        template="qwen2_5_vl",
        model=_qwen_vl("Qwen2_5_VL", _QWEN25_VISION, [4, 6, 6]),
        processor=_qwen_processor("Qwen2_5_VL", 14, 0.48),
        **_QWEN_VL,
    ),
    "Qwen3-VL": Family(
        template="qwen3_vl",
        model=_qwen_vl("Qwen3VL", _QWEN3_VISION, [6, 5, 5]),
        processor=_qwen_processor("Qwen3VL", 16, 0.5),
        plain=("<think>", "</think>"),
        **_QWEN_VL,
    ),
    "Qwen3-VL-Thinking": Family(
        template="qwen3_vl_thinking",
        model=_qwen_vl("Qwen3VL", _QWEN3_VISION, [6, 5, 5]),
        processor=_qwen_processor("Qwen3VL", 16, 0.5),
        plain=("<think>", "</think>"),
        **_QWEN_VL,
    ),
    "Qwen3-VL-MoE": Family(
        template="qwen3_vl",
        model=_qwen_vl("Qwen3VLMoe", _QWEN3_VISION, [6, 5, 5], **_EXPERTS),
        processor=_qwen_processor("Qwen3VL", 16, 0.5),
        plain=("<think>", "</think>"),
        **_QWEN_VL,
    ),
    "Qwen2.5": Family(
        template="qwen2_5", model=_causal("Qwen2Config", "Qwen2ForCausalLM"), **_QWEN_TEXT
    ),
    "Qwen3": Family(
        template="qwen3",
        model=_causal("Qwen3Config", "Qwen3ForCausalLM"),
        plain=("<think>", "</think>"),
        **_QWEN_TEXT,
    ),
    "Qwen3-Thinking": Family(
        template="qwen3_thinking_2507",
        model=_causal("Qwen3Config", "Qwen3ForCausalLM"),
        plain=("<think>", "</think>"),
        **_QWEN_TEXT,
    ),
    "Qwen3-MoE": Family(
        template="qwen3_instruct_2507",
        model=_causal("Qwen3MoeConfig", "Qwen3MoeForCausalLM", **_EXPERTS),
        plain=("<think>", "</think>"),
        **_QWEN_TEXT,
    ),
    "Llama 3": Family(template="llama3", **_LLAMA_TEXT),
    "Llama 3.2": Family(template="llama3_2", **_LLAMA_TEXT),
    "DeepSeek-R1-Distill": Family(
        template="deepseek_r1_distill",
        model=_causal("Qwen2Config", "Qwen2ForCausalLM"),
        special=_DEEPSEEK,
        plain=("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>"),
        bos=_DEEPSEEK[0],
        eos=_DEEPSEEK[1],
    ),
    "DeepSeek-LLM": Family(
        template="deepseek_llm",
        model=_causal("LlamaConfig", "LlamaForCausalLM"),
        special=_DEEPSEEK,
        bos=_DEEPSEEK[0],
        eos=_DEEPSEEK[1],
    ),
    "Gemma 2": Family(
        template="gemma",
        model=_causal("Gemma2Config", "Gemma2ForCausalLM", **_GEMMA_LAYERS),
        **_GEMMA_TEXT,
    ),
    "Gemma 3 text": Family(
        template="gemma3",
        model=_causal("Gemma3TextConfig", "Gemma3ForCausalLM", **_GEMMA_LAYERS),
        **_GEMMA_TEXT,
    ),
    "Gemma 3": Family(
        template="gemma3",
        model=_gemma3,
        special=_GEMMA,
        plain=("\n", "\n\n", "\n\n\n", "\n\n\n\n"),
        bos="<bos>",
        eos="<end_of_turn>",
        named={
            "image_token": "<image_soft_token>",
            "boi_token": "<start_of_image>",
            "eoi_token": "<end_of_image>",
        },
        processor=_gemma3_processor,
    ),
    "InternVL 3": Family(
        template="internvl3",
        model=_internvl,
        special=(*_CHATML, "<img>", "</img>", "<IMG_CONTEXT>", "<video>"),
        eos="<|im_end|>",
        named={
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
        processor=_internvl_processor,
    ),
    "LLaVA-OneVision": Family(
        template="llava_onevision",
        model=_llava_onevision,
        special=(*_CHATML, "<image>", "<video>"),
        eos="<|im_end|>",
        named={"image_token": "<image>", "video_token": "<video>"},
        processor=_llava_processor,
    ),
    "Phi-4-multimodal": Family(
        template="phi4_multimodal",
        model=_phi4_multimodal,
        special=_PHI,
        eos="<|endoftext|>",
        named={"image_token": "<|image|>", "audio_token": "<|audio|>"},
        processor=_phi4_multimodal_processor,
    ),
    "LLaVA (generic)": Family(
        template="llava_onevision",
        model=_llava,
        special=(*_CHATML, "<image>"),
        eos="<|im_end|>",
        named={"image_token": "<image>"},
        processor=_llava_simple_processor,
    ),
}
"""Families by name in the table of `model_families.py`."""
