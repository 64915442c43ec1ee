"""What commands accept besides a configuration: an environment, or a model."""

import re
from importlib.util import find_spec
from pathlib import Path

from agentrl.config.env_settings import EnvConfig
from agentrl.config.loading import is_packaged, load
from agentrl.config.model_settings import ModelConfig
from agentrl.config.rollout_settings import RolloutConfig
from agentrl.config.sections import Config
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_ENV_VERSION = re.compile(r"-v\d+")


def target_of(name: str) -> Config | str:
    """The file, run or packaged configuration of that name, or else the environment of that name.

    Raises:
        ConfigError: it is a path in an existing folder, but there is no such file.
    """
    is_file = name.endswith((".yaml", ".yml")) or Path(name).is_dir()
    if is_file or is_packaged(name):
        return name
    folder, slash, last = name.rpartition("/")
    if slash and ":" not in name:
        parent = Path(folder or "/")
        if parent.is_dir() or parent.name == "runs":  # an id may have a namespace, as ALE/Pong-v5
            there = [path.name for path in parent.iterdir()] if parent.is_dir() else []
            raise ConfigError(f"{name}: no such file or folder{did_you_mean(last, there)}")
    return Config(
        env=EnvConfig(id=name),
        rollout=RolloutConfig(engine="hf", launcher="local"),
    )


def model_target(name: str) -> Config | None:
    """The configuration that plays with a model, if that is a model's folder or an id of the hub.

    Images have the size that a run's model was trained with. Replies may have up to 1024 tokens.
    The engine is vLLM where it is installed, without Ray.

    Returns:
        None if the name is that of something else.
    """
    folder = Path(name)
    is_model = (folder / "config.json").is_file() and not (folder / "config.yaml").is_file()
    is_id = _HUB_ID.fullmatch(name) is not None and not _ENV_VERSION.search(name)
    is_path = folder.exists() or folder.parent.exists() or folder.parent.name == "runs"
    if not is_model and (is_path or not is_id):
        return None
    engine = "hf" if find_spec("vllm") is None else "vllm"
    return Config(
        model=model_config(name),
        rollout=RolloutConfig(
            engine=engine, launcher="local", max_new_tokens=1024, max_context=8192
        ),
    )


def model_config(path: str) -> ModelConfig:
    """The settings of a model, whose images have the size that a run trained it with."""
    trained = trained_model_config(path) or ModelConfig()
    return ModelConfig(path=path, image_size=trained.image_size, max_pixels=trained.max_pixels)


def trained_model_config(path: str) -> ModelConfig | None:
    """The settings of the run that trained a model; None of one that is not a run's `model`."""
    folder = Path(path).expanduser().absolute()
    file = folder.with_name("config.yaml")
    if folder.name != "model" or not file.is_file():
        return None
    try:
        return load(file).model
    except ConfigError:  # the file of another program, or of another version of agentrl
        return None
