"""From a configuration to a model's folder, its encoder and its engine."""

import hashlib
import json
from pathlib import Path

from agentrl.config import ModelConfig, RolloutConfig
from agentrl.errors import ConfigError
from agentrl.policies.chat import ChatEncoder
from agentrl.policies.engine import Engine


def resolve_model(model: ModelConfig, seed: int, cache: Path) -> Path:
    """The folder of the model that a configuration names.

    Args:
        model: `tiny` is built from the seed; a Hugging Face id is fetched.
        seed: of the tiny model's weights.
        cache: where a tiny model is kept.

    Returns:
        A folder with config.json and weights.

    Raises:
        ConfigError: there is no such model, or it cannot be fetched.
    """
    if model.path == "tiny":
        return _tiny(model, seed, cache)
    folder = Path(model.path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(f"model.path={model.path}: this folder holds no config.json")
        return folder
    if not _looks_like_hub_id(model.path):
        raise ConfigError(f"model.path={model.path}: no such folder")
    return _fetch(model.path)


def _looks_like_hub_id(path: str) -> bool:
    owner, slash, name = path.partition("/")
    plain = bool(owner and name) and "/" not in name
    return bool(slash) and plain and owner not in (".", "..", "~")


def _tiny(model: ModelConfig, seed: int, cache: Path) -> Path:
    from agentrl.policies import tiny

    named = json.dumps([seed, dict(model.tiny)], sort_keys=True)
    folder = cache / f"tiny-{hashlib.blake2b(named.encode(), digest_size=6).hexdigest()}"
    return tiny.build(folder, seed, **model.tiny)


def _fetch(id: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted = ["*.json", "*.jinja", "*.safetensors", "*.txt", "*.model"]
    try:
        return Path(snapshot_download(id, allow_patterns=wanted))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"model.path={id}: no such folder, and the Hugging Face hub does not give it: {reason}"
        ) from error


def open_encoder(model: ModelConfig, folder: Path) -> ChatEncoder:
    """The encoder of a model, with the picture sizes of the configuration.

    Raises:
        ConfigError: the model cannot be used for chats.
    """
    return ChatEncoder(folder, model.image_size, model.max_pixels)


def open_engine(rollout: RolloutConfig, model: ModelConfig, folder: Path) -> Engine:
    """The engine that a configuration names, not started yet.

    Args:
        rollout: says which.
        model: its types.
        folder: as `resolve_model` returns it.

    Raises:
        ConfigError: the engine does not exist or does not take its arguments.
    """
    try:
        return (
            _hf(rollout, model, folder) if rollout.engine == "hf" else _vllm(rollout, model, folder)
        )
    except TypeError as error:
        raise ConfigError(f"rollout.engine_kwargs: {rollout.engine}: {error}") from error


def _hf(rollout: RolloutConfig, model: ModelConfig, folder: Path) -> Engine:
    from agentrl.policies.hf_engine import HFEngine

    return HFEngine(
        folder,
        dtype=model.dtype,
        attention=model.attention,
        deadline_s=rollout.deadline_s,
        **rollout.engine_kwargs,
    )


def _vllm(rollout: RolloutConfig, model: ModelConfig, folder: Path) -> Engine:
    from agentrl.policies.vllm_engine import VLLMEngine

    return VLLMEngine(
        folder,
        dtype=model.dtype,
        max_context=rollout.max_context,
        deadline_s=rollout.deadline_s,
        engine_kwargs=rollout.engine_kwargs,
    )
