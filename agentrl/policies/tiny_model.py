"""Build a Qwen2.5-VL of about two million parameters from a seed, in the Hugging Face format.

Its tokenizer has a token for every byte, so any text round-trips, and for a few whole words. The
pieces of the action grammar are single tokens, so a reply has about ten tokens.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.errors import ConfigError
from agentrl.text.name_suggestions import known_names

if TYPE_CHECKING:
    from torch import nn
    from transformers import Qwen2_5_VLConfig

SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_GRAMMAR = ("<think>", "</think>", "<action>tap(", "<action>select(", ", ", ")</action>")
_ROLES = ("system", "user", "assistant")
# fmt: off
_WORDS = (
    "green", "yellow", "red", "blue", "black", "white", "pick", "next", "show", "lamp", "card",
    "cards", "left", "middle", "right", "up", "down", "largest", "smallest", "number",
    "numbers", "score", "round", "game", "button", "press", "tap", "touch", "select", "screen",
    "look", "think", "turn", "remember", "wait", "start", "stop", "yes", "no", "win", "lose",
    "open", "close", "box", "wall", "goal", "player", "push", "move", "row", "column",
)
# fmt: on

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' or 'image' in part %}"
    "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}"
    "{{ '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(slots=True, kw_only=True, frozen=True)
class TinySizes:
    """Configurable sizes of the tiny model (`model.tiny`)."""

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 256
    vision_hidden: int = 128
    vision_depth: int = 3
    vision_heads: int = 4
    vision_intermediate: int = 256
    patch: int = 28
    """Side of a patch in pixels."""
    merge: int = 1
    """Side of a token in patches."""
    rope_theta: float = 4.0
    """Base of M-RoPE, which gives the width the lowest frequencies. With the usual 10,000, a model
    of this size cannot distinguish the columns of a small image."""
    image_mean: float = 0.93
    """Mean of the pixels in [0, 1], set to the background of a light screen so that content stands
    out."""
    image_std: float = 0.27
    max_position: int = 8192
    embedding_std: float = 1.0
    """Standard deviation of the initial token embeddings."""
    head_std: float = 0.02
    """Standard deviation of the initial output head."""
    words: Sequence[str] = ()
    """Additional single-token words, such as names of actions. The model can read and write any
    text, but other words take one token per byte."""


def build(folder: Path, seed: int, **sizes: Any) -> Path:
    """Write a new tiny model; the same arguments always write the same bytes.

    Args:
        folder: created if it does not exist.
        seed: seed of the initial weights.
        **sizes: fields of `TinySizes` that differ from its defaults.

    Returns:
        The folder.

    Raises:
        ConfigError: a size is unknown or does not fit the others.
        OSError: the folder cannot be written, for example because the disk is full.
    """
    parsed = parse_sizes(sizes)
    config = _write_settings(folder, parsed)
    import torch
    from safetensors.torch import save
    from transformers import Qwen2_5_VLForConditionalGeneration

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = Qwen2_5_VLForConditionalGeneration._from_config(config, dtype=torch.float32)
        _initialize(model, parsed)
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    (folder / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
    return folder


def write_tokenizer(folder: Path, **sizes: Any) -> Path:
    """Write all files of a tiny model except its weights; see `build`."""
    _write_settings(folder, parse_sizes(sizes))
    return folder


def _write_settings(folder: Path, sizes: TinySizes) -> "Qwen2_5_VLConfig":
    config = _config(sizes)
    config.architectures = ["Qwen2_5_VLForConditionalGeneration"]
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    save_tokenizer(folder, sizes.max_position, sizes.words)
    _save_processor(folder, sizes)
    return config


def parse_sizes(sizes: dict[str, Any]) -> TinySizes:
    """Parse sizes, with defaults for those not given."""
    known = [field.name for field in dataclasses.fields(TinySizes)]
    for name in sizes:
        if name not in known:
            raise ConfigError(f"model.tiny.{name} does not exist{known_names(name, known)}")
        is_integer = isinstance(getattr(TinySizes(), name), int)
        value, kind = sizes[name], int if is_integer else int | float
        if name != "words" and not (
            type(value) is not bool and isinstance(value, kind) and value > 0
        ):
            what = "a whole number" if is_integer else "a number"
            raise ConfigError(f"model.tiny.{name} must be {what} above 0, got {value!r}")
    result = TinySizes(**sizes)
    if isinstance(result.words, str) or not all(w and isinstance(w, str) for w in result.words):
        raise ConfigError(f"model.tiny.words must be a list of strings, got {result.words!r}")
    # vLLM's attention on the CPU supports only head sizes of 32, 64, ...
    if result.hidden % (32 * result.heads) or result.vision_hidden % (4 * result.vision_heads):
        raise ConfigError(
            f"model.tiny: hidden={result.hidden} must be a multiple of 32*heads="
            f"{32 * result.heads}, and vision_hidden={result.vision_hidden} a multiple of "
            f"4*vision_heads={4 * result.vision_heads}"
        )
    if result.heads % result.kv_heads:
        raise ConfigError(
            f"model.tiny: heads={result.heads} must be a multiple of kv_heads={result.kv_heads}"
        )
    return result


def _config(sizes: TinySizes) -> "Qwen2_5_VLConfig":
    from transformers import Qwen2_5_VLConfig

    ids = token_ids(sizes.words)
    # Divide frequencies between axes in Qwen2.5-VL's proportions: 16, 24 and 24 of 64.
    half = sizes.hidden // sizes.heads // 2
    spatial = half * 3 // 8
    text = {
        "vocab_size": len(ids),
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "max_position_embeddings": sizes.max_position,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": sizes.rope_theta,
            "mrope_section": [half - 2 * spatial, spatial, spatial],
        },
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "tie_word_embeddings": False,
    }
    vision = {
        "depth": sizes.vision_depth,
        "hidden_size": sizes.vision_hidden,
        "intermediate_size": sizes.vision_intermediate,
        "num_heads": sizes.vision_heads,
        "out_hidden_size": sizes.hidden,
        "patch_size": sizes.patch,
        "spatial_merge_size": sizes.merge,
        "temporal_patch_size": 2,
        "window_size": 4 * sizes.patch * sizes.merge,
        # Images are small, so every block uses full attention.
        "fullatt_block_indexes": list(range(sizes.vision_depth)),
    }
    return Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        # Embeddings and head are initialized at different scales, so they cannot be tied.
        tie_word_embeddings=False,
        dtype="float32",
    )


def _initialize(model: "nn.Module", sizes: TinySizes) -> None:
    """Scale weights by fan-in, with smaller residual outputs, so that step 1 already learns."""
    for name, weight in model.named_parameters():
        if weight.dim() < 2:
            continue
        if "embed_tokens" in name:
            weight.normal_(0, sizes.embedding_std)
        elif "lm_head" in name:
            weight.normal_(0, sizes.head_std)
        else:
            weight.normal_(0, weight[0].numel() ** -0.5)
            if any(end in name for end in ("o_proj", "down_proj", "attn.proj")):
                weight.mul_((2 * sizes.layers) ** -0.5)


def _save_processor(folder: Path, sizes: TinySizes) -> None:
    token = (sizes.patch * sizes.merge) ** 2
    image = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2_5_VLProcessor",
        "patch_size": sizes.patch,
        "merge_size": sizes.merge,
        "temporal_patch_size": 2,
        "image_mean": [sizes.image_mean] * 3,
        "image_std": [sizes.image_std] * 3,
        "size": {"shortest_edge": token, "longest_edge": 1024 * token},
    }
    video = {**image, "video_processor_type": "Qwen2VLVideoProcessor"}
    del video["image_processor_type"]
    ids = token_ids()
    generation = {
        "do_sample": True,
        "temperature": 1.0,
        "bos_token_id": ids["<|endoftext|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
    }
    for name, content in (
        ("preprocessor_config", image),
        ("video_preprocessor_config", video),
        ("generation_config", generation),
    ):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def pieces(words: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the tokens other than bytes and special tokens, ordered by id."""
    positions = [f"{hundredth / 100:.2f}" for hundredth in range(101)]
    spaced = [f" {word}" for word in (*_WORDS, *map(str, range(10)))]
    own = (*_GRAMMAR, *_ROLES, *positions, *_WORDS, *spaced)
    added = (w for w in words if len(w.encode()) > 1 and w not in SPECIALS)
    return tuple(dict.fromkeys((*own, *added)))


def token_ids(words: Sequence[str] = ()) -> dict[str, int]:
    """Assign token ids: 256 bytes, then the special tokens, then the pieces."""
    tokens = (*_byte_characters(), *SPECIALS, *pieces(words))
    return {token: id for id, token in enumerate(tokens)}


def _byte_characters() -> list[str]:
    # As in GPT-2, bytes without a visible character are mapped to characters from 256 on.
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = iter(range(0x100, 0x200))
    return [chr(byte if byte in shown else next(hidden)) for byte in range(256)]


def save_tokenizer(folder: Path, max_length: int, words: Sequence[str] = ()) -> None:
    """Write tokenizer.json, tokenizer_config.json and the chat template."""
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "processor_class": "Qwen2_5_VLProcessor",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": False,
    }
    for name, content in (("tokenizer", _tokenizer(words)), ("tokenizer_config", settings)):
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def _tokenizer(words: Sequence[str]) -> dict[str, object]:
    """Build the content of tokenizer.json."""
    known = token_ids(words)
    added = [
        {
            "id": known[token],
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": token in SPECIALS,
        }
        for token in (*SPECIALS, *pieces(words))
    ]
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: known[token] for token in _byte_characters()},
            "merges": [],
        },
    }
