"""Resolves a command's target: a run, a configuration, an environment, a model or a server."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import gymnasium

from agentrl import config as configuration
from agentrl.config import Config, EndpointConfig, EnvConfig, ModelConfig, RolloutConfig
from agentrl.env_registry import find_env, registered_envs
from agentrl.errors import ConfigError
from agentrl.files import StrPath, path_of
from agentrl.policies.models.gguf_conversion import is_gguf
from agentrl.policies.models.model_adapter import read_json
from agentrl.policies.models.model_record import model_config
from agentrl.policies.models.model_source import check_model, find_config
from agentrl.runs.run_folder import TIME_SUFFIX, RunFolder, known_runs
from agentrl.text.name_suggestions import did_you_mean

_ENV_VERSION = re.compile(r"-v\d+$")
_VERSION_IN_NAME = re.compile(r"-v\d+")
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_SERVERS = ("http://", "https://")
_PLAIN_NAMES = {"", "config", "configs", "settings", "tmp", "train", "training"}
"""Generic names of files and folders, which say nothing about the job."""
_MAX_NEW_TOKENS = 1024
"""Limit on replies of a model without a run; a run's configuration has its own limit."""
_LISTS = (
    ". `agentrl runs` lists runs, and `agentrl envs list --all` lists environments; a "
    "configuration is a YAML file (`agentrl init` creates one) or comes with agentrl, such as "
    "sokoban"
)


@dataclass(slots=True, kw_only=True, frozen=True)
class Target:
    """The job or model that a command was given."""

    text: str | None
    """The name as the user wrote it; None for a `Config` from Python."""
    name: str
    """Short name for folders and messages, such as `frozen_lake`."""
    config: Config
    """The configuration with the overrides applied and with absolute paths."""
    overrides: Sequence[str] = ()
    run: Path | None = None
    """The run's folder, if the target is a run."""
    is_model: bool = False
    """True if the target is just a model, so that its environment is only a default."""

    def overrides_key(self, key: str) -> bool:
        """Return whether an override sets this setting."""
        return any(override.partition("=")[0] == key for override in self.overrides)

    @property
    def run_name(self) -> str | None:
        """`run.name` if an override sets it; the name in a run's configuration is already taken."""
        return self.config.run.name if self.overrides_key("run.name") else None

    def check_names_env(self) -> None:
        """Check that a job that trained on a data set is not played on the default environment.

        Raises:
            ConfigError: neither the job's configuration nor an override names an environment.
        """
        section = self.config.only_learns_from
        if section is None or self.overrides_key("env.id"):
            return
        run = "RUN" if self.run is None else self.text
        raise ConfigError(
            f"{self.text or 'the configuration'} trains on a data set (section {section}) and has "
            "no environment to play; add env.id=..., use a configuration with the run's model "
            f"(CONFIG model.path={run}/model), or choose a suite (agentrl eval --suite)"
        )


def open_target(
    source: Config | StrPath, overrides: Sequence[str] = (), *, may_be_model: bool = False
) -> Target:
    """Resolve the target that a command plays.

    Args:
        source: a run's folder, a YAML file, a packaged configuration, an environment as in
            `env.id`, or a configuration itself.
        overrides: `key=value` settings.
        may_be_model: also accept a model's folder, GGUF file or id on the Hugging Face Hub. A
            model's images have the size that it was trained with, if known, and its engine is vLLM
            if installed, without Ray.

    Raises:
        ConfigError: the source is none of these, or an override is wrong.
    """
    text, run, is_model = None, None, False
    named: Config | str
    if isinstance(source, Config):
        named = source
    else:
        text = os.fspath(source)
        is_model = may_be_model and _is_model(text)
        named = _model_to_play(text) if is_model else named_job(text)
        if isinstance(named, str) and Path(named).is_dir():
            # Make the path absolute, because environments may change the current folder.
            run = Path(named).absolute()
            RunFolder.existing(run)
            named = str(run / "config.yaml")
        elif isinstance(named, Config) and not is_model:
            _check_env(text, named.env.id, may_be_model=may_be_model)
    config = configuration.with_absolute_paths(configuration.resolve(named, overrides))
    name = job_name(named, config) if run is None else run.name
    return Target(
        text=text, name=name, config=config, overrides=overrides, run=run, is_model=is_model
    )


def open_model_target(text: str, overrides: Sequence[str] = ()) -> Target:
    """Resolve a model that answers without an environment.

    Args:
        text: a run's folder, a model's folder or GGUF file, an id on the Hugging Face Hub, `tiny`,
            or the URL of a chat completions server.
        overrides: `key=value` settings. Without `model.dtype`, a model that does not come from a
            run is loaded in the precision of its files.

    Raises:
        ConfigError: the model does not exist, or an override is wrong.
    """
    if (Path(text) / "config.yaml").is_file():
        return open_target(text, overrides)
    rollout = RolloutConfig(max_new_tokens=_MAX_NEW_TOKENS)
    if text.startswith(_SERVERS):
        rollout = replace(rollout, engine="remote", endpoint=EndpointConfig(url=text))
        config = Config(rollout=rollout)
    else:
        _check_model_exists(text)
        config = Config(model=model_config(text), rollout=rollout)
    config = configuration.resolve(config, overrides)
    target = Target(text=text, name=text, config=config, overrides=overrides, is_model=True)
    if target.overrides_key("model.dtype"):
        return target
    return replace(target, config=replace(config, model=_in_own_precision(config.model)))


def named_job(text: str) -> Config | str:
    """Return a file, run or packaged configuration unchanged, or the job for an environment.

    Raises:
        ConfigError: the argument is a path in an existing folder, but there is no such file.
    """
    if is_configuration(text) or Path(text).is_dir():
        return text
    # A mistyped path must not become an unknown environment.
    folder, slash, last = text.rpartition("/")
    if slash and ":" not in text:
        parent = Path(folder or "/")
        # Otherwise, the text may be an id with a namespace, such as ALE/Pong-v5.
        if parent.is_dir() or parent.name == "runs":
            there = [path.name for path in parent.iterdir()] if parent.is_dir() else []
            raise ConfigError(f"{text}: no such file or folder{did_you_mean(last, there)}")
    return Config(env=EnvConfig(id=text), rollout=RolloutConfig(engine="hf", launcher="local"))


def is_configuration(text: str) -> bool:
    """Return whether a string names a YAML file or a packaged configuration."""
    return text.endswith((".yaml", ".yml")) or configuration.is_packaged(text)


def job_name(source: Config | StrPath, config: Config) -> str:
    """Return the prefix of a job's run names.

    Args:
        source: a configuration, or its file or packaged name. For a file with a generic name, such
            as `config.yaml`, the folder's name is used.
        config: the job, whose environment or data set supplies the default.
    """
    if not isinstance(source, Config):
        path = Path(source)
        # A run's configuration is named after its folder, without the time.
        for name in (path.stem, path.absolute().parent.name):
            if name.lower() not in _PLAIN_NAMES:
                return re.sub(f"{TIME_SUFFIX}$", "", name)
    id = config.only_learns_from or config.env.id
    name = _ENV_VERSION.sub("", re.split(r"[/:]", id)[-1])
    return re.sub(r"\W+", "_", re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "_", name)).lower() or "run"


def _check_env(text: str, id: str, *, may_be_model: bool) -> None:
    try:
        find_env(id)
    except ConfigError as error:
        if ":" in text or _ENV_VERSION.search(text) is not None:
            raise  # the error explains what is wrong with the environment
        names = [*configuration.packaged_names(), *sorted(str(f) for f in Path().glob("*.y*ml"))]
        names += [*known_runs(), *(entry.id for entry in registered_envs()), *gymnasium.registry]
        names += _known_models() if may_be_model else []
        kinds = "run, configuration, model folder" if may_be_model else "run, configuration"
        hint = did_you_mean(text, names) or _LISTS
        raise ConfigError(f"{text}: no such {kinds} or environment{hint}") from error


def _is_model(text: str) -> bool:
    if is_gguf(text):
        return True
    folder = Path(text)
    if (folder / "config.json").is_file() and not (folder / "config.yaml").is_file():
        return True
    # An environment may have a namespace, like a Hub id, but then it also has a version.
    is_id = _HUB_ID.fullmatch(text) is not None and not _VERSION_IN_NAME.search(text)
    is_path = folder.exists() or folder.parent.exists() or folder.parent.name == "runs"
    return is_id and not is_path


def _model_to_play(text: str) -> Config:
    engine = "hf" if find_spec("vllm") is None else "vllm"
    rollout = RolloutConfig(
        engine=engine, launcher="local", max_new_tokens=_MAX_NEW_TOKENS, max_context=8192
    )
    return Config(model=model_config(text), rollout=rollout)


def _check_model_exists(text: str) -> None:
    if text == "tiny" or is_gguf(text):
        return
    is_in_folder = "/" not in text or Path(text).parent.is_dir()
    if is_in_folder and not path_of(text, "model").is_dir():
        hint = did_you_mean(text, [*known_runs(), *_known_models()]) or (
            ". `agentrl runs` lists runs; a model may also be an id on the Hugging Face Hub, such "
            "as Qwen/Qwen2.5-VL-3B-Instruct, or the URL of a server"
        )
        raise ConfigError(f"{text}: no such run or model folder{hint}")


def _known_models() -> list[str]:
    """Return the model folders in the current folder and its runs."""
    found = (*Path().glob("*/config.json"), *Path("runs").glob("*/model/config.json"))
    return [str(file.parent) for file in sorted(found)]


def _in_own_precision(model: ModelConfig) -> ModelConfig:
    """Return the model with the precision of its files, if engines support it."""
    if model.path == "tiny":
        return model
    check_model(model)
    # Vision-language models may have the dtype in a subsection, such as text_config, or under its
    # old name.
    found = read_json(find_config(model) / "config.json")
    parts = [found, *(part for part in found.values() if isinstance(part, dict))]
    named = (part.get("dtype") or part.get("torch_dtype") for part in parts)
    own = next((name for name in named if name), "float32")
    return replace(model, dtype="float32" if own == "float32" else "bfloat16")
