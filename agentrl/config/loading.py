"""Configurations from YAML files and overrides, and back; the only user of OmegaConf."""

import copy
import dataclasses
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from agentrl.config.algorithm_presets import PRESETS, settings_of
from agentrl.config.algorithm_settings import AlgorithmConfig
from agentrl.config.bounds import path_of
from agentrl.config.sections import Config, renamed_in
from agentrl.config.value_types import find_mistyped
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean

_UNFIT = (OmegaConfBaseException, YAMLError, TypeError, ValueError, RecursionError)
"""What OmegaConf raises for a tree that does not fit the sections."""
_PACKAGED = Path(__file__).resolve().parent.parent / "configs"


def is_packaged(name: str) -> bool:
    """Whether a configuration of this name comes with agentrl."""
    return (_PACKAGED / f"{name}.yaml").is_file()


def find(name: str) -> Path:
    """The file of a configuration, given by its path or as the name of a packaged one.

    Raises:
        ConfigError: no such file.
    """
    path = path_of(name, "configuration")
    if path.is_file():
        return path
    packaged = _PACKAGED / f"{Path(name).stem}.yaml"
    if path.suffix in ("", ".yaml") and len(path.parts) == 1 and packaged.is_file():
        return packaged
    known = sorted(p.stem for p in _PACKAGED.glob("*.yaml"))
    hint = did_you_mean(path.stem, known)
    raise ConfigError(f"{name}: no such configuration{hint}. Packaged: {', '.join(known)}")


def load(source: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file or a packaged configuration and apply `key=value` overrides.

    Raises:
        ConfigError: an unknown key, a wrong type or value, a missing one (`???`), or a file that
            is not YAML.
    """
    path = find(str(source))
    config = _merge(path, overrides)
    if not config.run.search_path and path.parent.resolve() != _PACKAGED.resolve():
        config.run.search_path = [str(path.parent.absolute())]
    config.validate()
    _make_importable(config.run.search_path)
    return config


def resolve(source: Config | str | Path, overrides: Sequence[str] = ()) -> Config:
    """A configuration as given, or loaded by file or packaged name, with overrides applied.

    Raises:
        ConfigError: as `load`.
    """
    if not isinstance(source, Config):
        return load(source, overrides)
    if overrides:
        source = _merged(OmegaConf.create(source.to_dict()), overrides, "the configuration")
    source.validate()
    _make_importable(source.run.search_path)
    return source


def _merge(path: Path, overrides: Sequence[str]) -> Config:
    try:
        tree = OmegaConf.load(path)
    except (OmegaConfBaseException, YAMLError, ValueError, TypeError, OSError) as error:
        remedy = "Restore the file, or start a new run" if _belongs_to_run(path) else "Correct it"
        raise ConfigError(f"{unreadable(path, error)}. {remedy}.") from error
    if not isinstance(tree, DictConfig):
        raise ConfigError(f"{path}: must contain keys and values, not {type(tree).__name__}")
    if _belongs_to_run(path):
        tree = _upgraded(tree)
    return _merged(tree, overrides, path)


def _belongs_to_run(path: Path) -> bool:
    return path.name == "config.yaml" and (path.parent / "episodes").is_dir()


def unreadable(path: Path, error: Exception) -> str:
    """Why a YAML file cannot be read, with the line of the mistake."""
    mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
    line = "" if mark is None else f", line {mark.line + 1}"
    return f"{path}{line}: cannot be read: {_first_line(error)}"


def _upgraded(tree: DictConfig) -> DictConfig:
    """The tree that an earlier version saved with a run, with today's keys."""
    values = cast(dict[str, Any], OmegaConf.to_container(tree))
    for key, new, section in renamed_in(values):
        section[new] = section.pop(key.rpartition(".")[2])
    return OmegaConf.create(values)


def _refuse_renamed(tree: DictConfig, where: Path | str) -> None:
    values = cast(dict[str, Any], OmegaConf.to_container(tree))
    for key, new, _ in renamed_in(values):
        raise ConfigError(f"{where}: {key} is now called {key.rpartition('.')[0]}.{new}")


def _merged(tree: DictConfig, overrides: Sequence[str], path: Path | str) -> Config:
    """The defaults, updated by a tree and by overrides; `path` names the tree in messages."""
    given = _read(overrides)
    _refuse_renamed(tree, path)
    for override in overrides:
        _refuse_renamed(_read([override]), override)
    try:
        merged = _over_defaults(tree, given)
        # Once merged with the defaults, a missing value would become the default.
        left_open = sorted(OmegaConf.missing_keys(OmegaConf.merge(tree, given)))
        if left_open:
            raise ConfigError(
                f"{path}: {left_open[0]} has no default; set it in the file, or pass "
                f"'{left_open[0]}=...'"
            )
        return cast(Config, OmegaConf.to_object(merged))
    except _UNFIT as error:
        raise ConfigError(_error_message(error, tree, overrides, path)) from error


def _over_defaults(tree: DictConfig, given: DictConfig) -> DictConfig:
    """The whole tree, not checked for missing values."""
    tree = _without_kl(_without_preset(tree, given), given)
    return cast(DictConfig, OmegaConf.merge(_defaults(tree, given), tree, given))


def _error_message(
    error: Exception, tree: DictConfig, overrides: Sequence[str], path: Path | str
) -> str:
    """The error, prefixed by the override that causes it, or by the file."""
    message, key = _first_line(error), getattr(error, "full_key", None)
    if not _fits(tree, []):
        return f"{path}: {_type_message(tree) or message}"
    wrong = next((one for one in overrides if not _fits(tree, [one])), None)
    if wrong is None:  # several together, or an interpolation of another value
        return message if key else f"{', '.join(overrides) or path}: {message}"
    if (found := find_mistyped(OmegaConf.to_container(_read([wrong])), Config)) is not None:
        key, message = found[0], ": ".join(found)
    if key == wrong.partition("=")[0]:
        message = message.removeprefix(f"{key}: ")
    return f"{wrong}: {message}"


def _type_message(tree: DictConfig) -> str | None:
    """The first value of a wrong type in a tree, with its key; None if there is none."""
    found = find_mistyped(OmegaConf.to_container(tree), Config)
    return None if found is None else ": ".join(found)


def _fits(tree: DictConfig, overrides: Sequence[str]) -> bool:
    try:
        _over_defaults(tree, _read(overrides))
    except _UNFIT:
        return False
    return True


def _defaults(*given: DictConfig) -> DictConfig:
    """The defaults of a tree, including those of its algorithm."""
    selected = [OmegaConf.select(tree, "algorithm.name") for tree in given]
    names = [name for name in selected if isinstance(name, str)]
    name = names[-1] if names else AlgorithmConfig().name
    return _defaults_of_built_in(name) if name in PRESETS else _defaults_with(name)


@cache
def _defaults_of_built_in(algorithm: str) -> DictConfig:
    """Built once: it takes half of the time of loading. A merge copies them."""
    return _defaults_with(algorithm)


def _defaults_with(algorithm: str) -> DictConfig:
    config = Config(algorithm=AlgorithmConfig(name=algorithm))
    return cast(DictConfig, OmegaConf.structured(config))


def _without_preset(tree: DictConfig, given: DictConfig) -> DictConfig:
    """A tree without its algorithm's defaults, if an override selects another algorithm.

    A saved configuration, such as a run's, spells out all of them.
    """
    before = OmegaConf.select(tree, "algorithm.name", default=AlgorithmConfig().name)
    after = OmegaConf.select(given, "algorithm.name", default=before)
    if after == before or not isinstance(before, str):
        return tree
    tree = copy.deepcopy(tree)
    own = settings_of(before)
    section = tree.get("algorithm")
    for name in list(section) if isinstance(section, DictConfig) else ():
        if name == "name" or (name in own and section[name] == own[name]):
            del section[name]
    return tree


def _without_kl(tree: DictConfig, given: DictConfig) -> DictConfig:
    """A tree without the settings of its KL penalty, if an override switches the penalty off."""
    if OmegaConf.select(given, "algorithm.kl") != "none":
        return tree
    if OmegaConf.select(tree, "algorithm.kl", default="none") == "none":
        return tree  # nothing is switched off: a coefficient without a penalty is an error
    tree = copy.deepcopy(tree)
    for name in ("kl_coefficient", "kl_target"):
        tree.algorithm.pop(name, None)
    return tree


def _read(overrides: Sequence[str]) -> DictConfig:
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not equals or not key:
            raise ConfigError(
                f"{override!r}: overrides are written key=value, such as train.steps=5"
            )
        try:
            OmegaConf.from_dotlist([override])
        except _UNFIT as error:
            raise ConfigError(f"{override}: cannot be read: {_first_line(error)}") from error
    return OmegaConf.from_dotlist(list(overrides))


def arguments(overrides: Sequence[str]) -> dict[str, Any]:
    """`key=value` texts as plain values, parsed like overrides.

    Raises:
        ConfigError: one is not `key=value`.
    """
    try:
        return cast(dict[str, Any], OmegaConf.to_container(_read(overrides)))
    except _UNFIT as error:
        raise ConfigError(f"{', '.join(overrides)}: {_first_line(error)}") from error


def _make_importable(folders: Sequence[str]) -> None:
    """Make the modules that a configuration names importable from these folders."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)


def to_yaml(config: Config) -> str:
    """The whole tree as YAML."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def from_dict(tree: dict[str, Any]) -> Config:
    """The inverse of `Config.to_dict`.

    Raises:
        ConfigError: as `load`.
    """
    given = OmegaConf.create(tree)
    try:
        merged = OmegaConf.merge(_defaults(given), given)
        config = cast(Config, OmegaConf.to_object(merged))
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        raise ConfigError(_type_message(given) or _first_line(error)) from error
    config.validate()
    _make_importable(config.run.search_path)
    return config


def _first_line(error: Exception) -> str:
    key = getattr(error, "full_key", None)
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    section = getattr(error, "object_type", None)
    if re.fullmatch(r"Key '.*' not in '\w+'", text) and dataclasses.is_dataclass(section):
        text += f"; there are {', '.join(field.name for field in dataclasses.fields(section))}"
    elif isinstance(error, MarkedYAMLError):
        text = error.problem or text
    return f"{key}: {text}" if key else text
