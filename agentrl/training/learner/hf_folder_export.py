"""Export a model as an ordinary Hugging Face folder."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from agentrl.files import replacing_folder
from agentrl.policies.models.model_loading import SCORE
from agentrl.weight_sync.safetensors_files import write_stream

if TYPE_CHECKING:
    from torch import Tensor

_MAX_BYTES = 5 * 10**9
"""Maximum file size of an exported model, as is usual on the Hugging Face Hub."""
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")


def export(
    source: Path,
    folder: Path,
    layout: Mapping[str, Tensor],
    tensors: Iterable[tuple[str, Tensor]],
    *,
    max_bytes: int = _MAX_BYTES,
) -> None:
    """Write an ordinary Hugging Face folder atomically, holding one tensor at a time.

    Args:
        source: the folder whose configuration, tokenizer and processor files are copied.
        folder: folder to write; replaced if it exists.
        layout: see `write_stream`.
        tensors: the full weights, with their names.
        max_bytes: maximum file size, above which a model is written as several files with an
            index; a single tensor may be larger.
    """
    with replacing_folder(folder) as partial:
        for file in source.iterdir():
            if file.is_file() and not file.name.endswith(_WEIGHT_SUFFIXES):
                shutil.copyfile(file, partial / file.name)
        _update_config(partial / "config.json", layout)
        parts = _split(layout, max_bytes)
        # Use the file names of transformers.
        if len(parts) == 1:
            write_stream(partial / "model.safetensors", layout, tensors)
            return
        left = iter(tensors)
        of_file = {
            f"model-{k:05}-of-{len(parts):05}.safetensors": p for k, p in enumerate(parts, 1)
        }
        for name, part in of_file.items():
            write_stream(partial / name, part, islice(left, len(part)))
        assert next(left, None) is None, "the layout has all tensors"
        sizes = (like.numel() * like.element_size() for like in layout.values())
        index = {
            "metadata": {"total_size": sum(sizes)},
            "weight_map": {name: file for file, part in of_file.items() for name in part},
        }
        (partial / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def _split(layout: Mapping[str, Tensor], max_bytes: int) -> list[dict[str, Tensor]]:
    """Split a layout into the layouts of successive files."""
    parts: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, like in layout.items():
        own = like.numel() * like.element_size()
        if parts[-1] and size + own > max_bytes:
            parts.append({})
            size = 0
        parts[-1][name] = like
        size += own
    return parts


def _update_config(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Set the dtype in a model's configuration to that of its weights, which engines compute in.

    A reward model becomes a sequence classification model, as transformers calls it.
    """
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()}
    if not file.is_file() or len(dtypes) != 1:
        return
    config = json.loads(file.read_text(encoding="utf-8"))
    # Multi-part models (text_config, vision_config) name the dtype in each part, older models as
    # torch_dtype.
    for part in (config, *config.values()):
        for name in ("dtype", "torch_dtype"):
            if isinstance(part, dict) and name in part:
                part[name] = next(iter(dtypes))
    if SCORE in tensors:
        config |= {"id2label": {"0": "reward"}, "label2id": {"reward": 0}}
        config["architectures"] = [
            re.sub("For[A-Z].*", "ForSequenceClassification", name)
            for name in config.get("architectures") or ()
        ]
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
