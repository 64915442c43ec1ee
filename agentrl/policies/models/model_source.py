"""Resolve `model.path`: `tiny`, a local folder, a GGUF file, or an id on the Hugging Face Hub."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentrl.config import ModelConfig
from agentrl.errors import ConfigError
from agentrl.extension_points import CHAT, MODEL
from agentrl.files import move_into_place, naming, path_of
from agentrl.policies import tiny_model
from agentrl.policies.models.gguf_conversion import converted_folder, is_gguf
from agentrl.policies.models.model_adapter import read_json
from agentrl.policies.models.model_loading import SCORE, adapter_for, check_weights, family_of
from agentrl.policies.models.stored_weights import open_files

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
# Timeout of the request that checks whether the hub has a model.
_HUB_TIMEOUT_S = 10.0


def check_model(model: ModelConfig) -> None:
    """Validate the model settings without contacting the hub or building a model.

    Raises:
        ConfigError: the folder or file does not exist, has no model or has broken weights; the
            sizes of a tiny model do not fit each other; or the adapter or the chat format does not
            exist.
    """
    if model.adapter != "auto":
        MODEL.resolve(model.adapter)
    if model.chat != "auto":
        CHAT.resolve(model.chat)
    if model.path == "tiny":
        tiny_model.parse_sizes(model.tiny)
        return
    folder = local_folder(model)
    if folder.is_dir():
        adapter_for(folder, model.adapter)
        check_weights(folder)
    elif not _HUB_ID.fullmatch(model.path) or Path(model.path).parent.is_dir():
        raise ConfigError(f"model.path={model.path}: no such folder")


def local_folder(model: ModelConfig) -> Path:
    """Return the folder of a local model, converting a GGUF file if necessary.

    For `tiny` and a Hub id, it is a folder of that name, which does not exist.

    Raises:
        ConfigError: the path cannot be used, or the GGUF file cannot be converted.
    """
    if is_gguf(model.path):
        return converted_folder(model.path)
    return path_of(model.path, "model.path")


def attention_heads(model: ModelConfig) -> int | None:
    """Return the language model's number of attention heads per layer; None if unknown."""
    if model.path == "tiny":
        return tiny_model.parse_sizes(model.tiny).heads
    if is_on_hub(model):
        return None
    config = read_json(local_folder(model) / "config.json")
    text = config.get("text_config")
    heads = (text if isinstance(text, dict) else config).get("num_attention_heads")
    return heads if isinstance(heads, int) else None


def model_origin(model: ModelConfig) -> tuple[str, dict[str, Any]]:
    """Return the path and sizes that identify a model's origin. Call `check_model` first."""
    if model.path != "tiny":
        return model.path, {}
    return model.path, asdict(tiny_model.parse_sizes(model.tiny))


def check_policy(model: ModelConfig) -> None:
    """Check that a model can generate replies. Call `check_model` first."""
    folder = None if model.path == "tiny" else local_folder(model)
    if folder is not None and any(folder.glob("*.safetensors")) and SCORE in open_files(folder):
        raise ConfigError(f"model.path={folder} is a reward model, which cannot generate replies")


def is_on_hub(model: ModelConfig) -> bool:
    """Return whether a model is neither `tiny` nor local. Call `check_model` first."""
    return model.path != "tiny" and not local_folder(model).is_dir()


def find_config(model: ModelConfig) -> Path:
    """Find the folder with config.json, for models other than `tiny`. Call `check_model` first.

    Raises:
        ConfigError: neither the Hugging Face Hub nor its local cache has the model, the Hub cannot
            be reached, or `model.adapter` does not exist.
    """
    if not is_on_hub(model):
        return local_folder(model)
    from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache

    with _hub_errors(model.path):
        file = try_to_load_from_cache(model.path, "config.json")
        if not isinstance(file, str):
            # A single request fails fast; a download without a network would retry for a long time.
            HfApi().model_info(model.path, timeout=_HUB_TIMEOUT_S)
            file = hf_hub_download(model.path, "config.json")
    family_of(Path(file).parent, model.adapter)
    return Path(file).parent


def resolve_model(model: ModelConfig, seed: int, tiny_folder: Path) -> Path:
    """Find, download or build the configured model.

    Args:
        model: `tiny` is built from the seed; a Hugging Face id is downloaded; a GGUF file is
            converted.
        seed: seed of the tiny model's weights.
        tiny_folder: where to build a tiny model, atomically, unless the folder exists.

    Returns:
        A folder with config.json and weights.
    """
    check_model(model)
    if model.path == "tiny":
        if not tiny_folder.is_dir():
            partial = tiny_folder.with_name(f"{tiny_folder.name}.{os.getpid()}")
            try:
                with naming(tiny_folder):
                    move_into_place(tiny_model.build(partial, seed, **model.tiny), tiny_folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        return tiny_folder
    folder = local_folder(model)
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    # Repositories often contain the same weights in other formats as well.
    wanted = ["*.json", "*.jinja", "*.safetensors", "*.txt", "*.model"]
    with _hub_errors(model.path):
        return Path(snapshot_download(model.path, allow_patterns=wanted))


def tokenizer_folder(model: ModelConfig, tiny_folder: Path) -> Path:
    """Return a local model's folder; for `tiny`, write only its configuration and tokenizer.

    Call `check_model` first.
    """
    if model.path != "tiny":
        return local_folder(model)
    return tiny_model.write_tokenizer(tiny_folder, **model.tiny)


@contextmanager
def _hub_errors(id: str) -> Iterator[None]:
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except Exception as error:  # the HTTP library raises its own connection errors
        reason = " ".join(str(error).split())[:300].rstrip(".")
        what = f"cannot be loaded from the Hugging Face Hub: {reason}"
        # If the hub did not answer, suggest what works offline.
        if not isinstance(error, HfHubHTTPError):
            what = f"the Hugging Face Hub cannot be reached: {reason}. Without a network, use a "
            what += "folder or a model that is in the Hub's cache"
        raise ConfigError(f"model.path={id} is not a folder, and {what}") from error
