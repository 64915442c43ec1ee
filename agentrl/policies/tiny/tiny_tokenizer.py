"""The tiny model's tokenizer: bytes, so that any text round-trips, and a few whole words.

The pieces of the action grammar are single tokens, so that a reply has about ten tokens.
"""

import json
from collections.abc import Sequence
from pathlib import Path

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


def pieces(words: Sequence[str] = ()) -> tuple[str, ...]:
    """The single-token texts beside bytes and special tokens, in the order of their ids.

    Args:
        words: additional ones; known ones and single bytes are ignored.
    """
    positions = [f"{hundredth / 100:.2f}" for hundredth in range(101)]
    spaced = [f" {word}" for word in (*_WORDS, *map(str, range(10)))]
    own = (*_GRAMMAR, *_ROLES, *positions, *_WORDS, *spaced)
    added = (w for w in words if len(w.encode()) > 1 and w not in SPECIALS)
    return tuple(dict.fromkeys((*own, *added)))


def ids(words: Sequence[str] = ()) -> dict[str, int]:
    """The id of every token: 256 bytes, then the special tokens, then the pieces."""
    tokens = (*_byte_characters(), *SPECIALS, *pieces(words))
    return {token: id for id, token in enumerate(tokens)}


def _byte_characters() -> list[str]:
    """The character that represents each byte in a byte-level vocabulary, as in GPT-2."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = iter(range(0x100, 0x200))
    return [chr(byte if byte in shown else next(hidden)) for byte in range(256)]


def save(folder: Path, max_length: int, words: Sequence[str] = ()) -> None:
    """Write tokenizer.json, tokenizer_config.json and the chat template.

    Args:
        folder: must exist.
        max_length: maximum tokens of the model's context.
        words: see `pieces`.
    """
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "processor_class": "Qwen2_5_VLProcessor",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": False,
    }
    _write(folder / "tokenizer.json", _tokenizer(words))
    _write(folder / "tokenizer_config.json", settings)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def _tokenizer(words: Sequence[str]) -> dict[str, object]:
    """The content of tokenizer.json."""
    known = ids(words)
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


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
