"""From a configuration to a model's folder, its encoder and its engine."""

import os
from pathlib import Path

from agentrl.config import ModelConfig, RolloutConfig
from agentrl.config.load import path_of
from agentrl.errors import ConfigError
from agentrl.policies.chat import ChatEncoder
from agentrl.policies.engine import Engine
from agentrl.policies.kits import kit_for
from agentrl.policies.kits.kit import check_weights


def check_model(model: ModelConfig) -> None:
    """See whether a model can be there, without fetching or building it.

    Raises:
        ConfigError: no such folder, one that holds no model or broken weights, or sizes of a
            tiny one that do not fit each other.
    """
    if model.path == "tiny":
        from agentrl.policies import tiny

        return tiny.check(model.tiny)
    folder = path_of(model.path, "model.path")
    if folder.is_dir():
        kit_for(folder)
        check_weights(folder)
    elif not _looks_like_hub_id(model.path):
        raise ConfigError(f"model.path={model.path}: no such folder")
    return None


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


def _looks_like_hub_id(path: str) -> bool:
    owner, slash, name = path.partition("/")
    plain = bool(owner and name) and "/" not in name
    return bool(slash) and plain and owner not in (".", "..", "~")


def _tiny(model: ModelConfig, seed: int, folder: Path) -> Path:
    from agentrl.policies import tiny

    if not folder.is_dir():
        partial = folder.with_name(f"{folder.name}.{os.getpid()}")
        tiny.build(partial, seed, **model.tiny).rename(folder)
    return folder


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


def open_engine(rollout: RolloutConfig, model: ModelConfig, folder: Path, seed: int = 0) -> Engine:
    """The engine that a configuration names, not started yet.

    Args:
        rollout: says which.
        model: its types.
        folder: as `resolve_model` returns it.
        seed: of the engine's own draws, where those of single prompts are not seeded.

    Raises:
        ConfigError: the engine does not exist or does not take its arguments.
    """
    try:
        return (
            _hf(rollout, model, folder)
            if rollout.engine == "hf"
            else _vllm(rollout, model, folder, seed)
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


def _vllm(rollout: RolloutConfig, model: ModelConfig, folder: Path, seed: int) -> Engine:
    from agentrl.policies.vllm_engine import VLLMEngine

    if rollout.temperature > 2:
        raise ConfigError(f"rollout.temperature={rollout.temperature}: vLLM takes 2 at most")
    return VLLMEngine(
        folder,
        dtype=model.dtype,
        max_context=rollout.max_context,
        deadline_s=rollout.deadline_s,
        seed=seed,
        start_deadline_s=rollout.start_deadline_s,
        engine_kwargs=rollout.engine_kwargs,
    )
