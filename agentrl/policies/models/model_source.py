"""Where a model comes from: it is built, stands in a folder here, or on the Hugging Face hub."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentrl.config import ModelConfig
from agentrl.config.loading import path_of
from agentrl.errors import ConfigError
from agentrl.policies.models.model_adapter import (
    adapter_for,
    check_family,
    check_weights,
    read_json,
)

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_HUB_S = 10.0
"""For the hub to answer whether it has a model."""


def check_model(model: ModelConfig) -> None:
    """See whether a model can be there, without asking the hub or building it.

    Raises:
        ConfigError: no such folder, one that holds no model or broken weights, or sizes of a
            tiny one that do not fit each other.
    """
    if model.path == "tiny":
        from agentrl.policies.tiny import tiny_model

        return tiny_model.check(model.tiny)
    folder = path_of(model.path, "model.path")
    if folder.is_dir():
        adapter_for(folder)
        check_weights(folder)
    elif not _HUB_ID.fullmatch(model.path) or Path(model.path).parent.is_dir():
        raise ConfigError(f"model.path={model.path}: no such folder")
    return None


def attention_heads(model: ModelConfig) -> int | None:
    """Of a layer of the language model, where `check_model` let it pass; None where nobody knows.

    Raises:
        ConfigError: its configuration cannot be read.
    """
    if model.path == "tiny":
        from agentrl.policies.tiny import tiny_model

        return tiny_model.heads(model.tiny)
    if is_on_hub(model):
        return None
    config = read_json(path_of(model.path, "model.path") / "config.json")
    heads = config.get("text_config", config).get("num_attention_heads")
    return heads if isinstance(heads, int) else None


def model_origin(model: ModelConfig) -> tuple[str, dict[str, Any]]:
    """What tells models apart by where they come from, where `check_model` let them pass."""
    if model.path != "tiny":
        return model.path, {}
    from agentrl.policies.tiny import tiny_model

    return model.path, tiny_model.all_sizes(model.tiny)


def is_on_hub(model: ModelConfig) -> bool:
    """Whether a model that `check_model` let pass is neither `tiny` nor a folder here."""
    return model.path != "tiny" and not path_of(model.path, "model.path").is_dir()


def check_hub(model: ModelConfig) -> None:
    """See whether the Hugging Face hub, or its cache here, has the model, if it is no folder.

    Raises:
        ConfigError: it has not, or cannot be asked; or no model_adapter knows the model's family.
    """
    if not is_on_hub(model):
        return
    from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache

    with _asking_hub(model.path):
        file = try_to_load_from_cache(model.path, "config.json")
        if not isinstance(file, str):
            # Asked once, and so at once answered: a download without network tries for long.
            HfApi().model_info(model.path, timeout=_HUB_S)
            file = hf_hub_download(model.path, "config.json")
    check_family(Path(file).parent)


def resolve_model(model: ModelConfig, seed: int, tiny_folder: Path) -> Path:
    """The folder of the model that a configuration names.

    Args:
        model: `tiny` is built from the seed; a Hugging Face id is fetched.
        seed: of the tiny model's weights.
        tiny_folder: where a tiny model is built, whole or not at all, unless one stands there.

    Returns:
        A folder with config.json and weights.

    Raises:
        ConfigError: there is no such model, or it cannot be fetched.
    """
    check_model(model)
    if model.path == "tiny":
        return _tiny(model, seed, tiny_folder)
    folder = path_of(model.path, "model.path")
    return folder if folder.is_dir() else _fetch(model.path)


def _tiny(model: ModelConfig, seed: int, folder: Path) -> Path:
    from agentrl.policies.tiny import tiny_model

    if not folder.is_dir():
        partial = folder.with_name(f"{folder.name}.{os.getpid()}")
        tiny_model.build(partial, seed, **model.tiny).rename(folder)
    return folder


def _fetch(id: str) -> Path:
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.jinja", "*.safetensors", "*.txt", "*.model"]
    with _asking_hub(id):
        return Path(snapshot_download(id, allow_patterns=wanted))


@contextmanager
def _asking_hub(id: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # those of a connection are its HTTP library's own
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"model.path={id}: no such folder, and the Hugging Face hub does not give it: {reason}"
        ) from error
