"""Settings from YAML files and overrides, and back; the only place that knows OmegaConf."""

import copy
import dataclasses
import hashlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from agentrl.config.algorithm_settings import AlgorithmConfig, settings_of
from agentrl.config.sections import Config
from agentrl.config.validation import validate
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean

_NO_LIST = r"Invalid value assigned: \w+ is not a ListConfig, TupleConfig, list, or tuple\.?"
"""What OmegaConf says of it, in words of its own."""
_UNFIT = (OmegaConfBaseException, YAMLError, TypeError, ValueError, RecursionError)
"""What OmegaConf raises of a tree that does not fit."""
_PACKAGED = Path(__file__).resolve().parent.parent / "configs"


def path_of(text: str, what: str) -> Path:
    """A path as a user writes it, with `~` resolved; nothing need stand there.

    Args:
        text: the path.
        what: the setting that it comes from.

    Raises:
        ConfigError: it cannot be a path: no such user, too long, characters of no file name, or
            a folder on the way that is closed to us.
    """
    try:
        path = Path(text).expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{what}={text!r}: cannot be used as a path: {error}") from error
    return path


def is_packaged(name: str) -> bool:
    """Whether a configuration of this name comes with agentrl."""
    return (_PACKAGED / f"{name}.yaml").is_file()


def find(name: str) -> Path:
    """The file of a configuration, given as a path or as the name of a packaged one.

    Raises:
        ConfigError: there is none.
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
        ConfigError: an unknown key, a wrong type or value, one that is left open (`???`), or a
            file that is no YAML.
    """
    path = find(str(source))
    config = _merge(path, overrides)
    if not config.run.search_path and path.parent.resolve() != _PACKAGED.resolve():
        config.run.search_path = [str(path.parent.absolute())]
    _settle(config)
    return config


def resolve(source: Config | str | Path, overrides: Sequence[str] = ()) -> Config:
    """A configuration as it is, or loaded by its file or packaged name, with overrides applied.

    Raises:
        ConfigError: as `load`.
    """
    if not isinstance(source, Config):
        return load(source, overrides)
    if overrides:
        source = _merged(OmegaConf.create(to_dict(source)), overrides, "the configuration")
    _settle(source)
    return source


def _merge(path: Path, overrides: Sequence[str]) -> Config:
    try:
        tree = OmegaConf.load(path)
    except (OmegaConfBaseException, YAMLError, ValueError, TypeError, OSError) as error:
        raise ConfigError(f"{path}: cannot be read: {_first_line(error)}") from error
    if not isinstance(tree, DictConfig):
        raise ConfigError(f"{path}: must hold keys and values, not {type(tree).__name__}")
    return _merged(tree, overrides, path)


def _merged(tree: DictConfig, overrides: Sequence[str], path: Path | str) -> Config:
    """A tree and overrides over the defaults; `path` says where the tree stands."""
    given = _read(overrides)
    try:
        merged = _over_defaults(tree, given)
        # Merged into the tree, what is left open would become the default.
        left_open = sorted(OmegaConf.missing_keys(OmegaConf.merge(tree, given)))
        if left_open:
            raise ConfigError(
                f"{path}: {left_open[0]} is left open, and yours to give: in the file, or as "
                f"'{left_open[0]}=...'"
            )
        return cast(Config, OmegaConf.to_object(merged))
    except _UNFIT as error:
        raise ConfigError(_blaming(error, tree, overrides, path)) from error


def _over_defaults(tree: DictConfig, given: DictConfig) -> DictConfig:
    """The whole tree, not checked for what is left open."""
    tree = _without_kl(_without_preset(tree, given), given)
    return cast(DictConfig, OmegaConf.merge(_defaults(tree, given), tree, given))


def _blaming(error: Exception, tree: DictConfig, overrides: Sequence[str], path: Path | str) -> str:
    """What is wrong, behind the one override that it comes from, or behind the file."""
    told, key = _first_line(error), getattr(error, "full_key", None)
    if not _fits(tree, []):
        return f"{path}: {told}"
    wrong = next((one for one in overrides if not _fits(tree, [one])), None)
    if wrong is None:  # it takes several, or a look at the values that they refer to
        return told if key else f"{', '.join(overrides) or path}: {told}"
    if key == wrong.partition("=")[0]:
        told = told.removeprefix(f"{key}: ")
    return f"{wrong}: {told}"


def _fits(tree: DictConfig, overrides: Sequence[str]) -> bool:
    try:
        _over_defaults(tree, _read(overrides))
    except _UNFIT:
        return False
    return True


def _defaults(*given: DictConfig) -> DictConfig:
    """The defaults of a tree, in which the algorithm that is asked for has set its own."""
    asked = [OmegaConf.select(tree, "algorithm.name") for tree in given]
    names = [name for name in asked if isinstance(name, str)]
    config = Config(algorithm=AlgorithmConfig(name=names[-1])) if names else Config()
    return cast(DictConfig, OmegaConf.structured(config))


def _without_preset(tree: DictConfig, given: DictConfig) -> DictConfig:
    """A tree without what its algorithm has set by itself, where another one is asked for.

    A configuration that was written out, as a run's, spells out all of it.
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
    """A tree without the weight of its divergence, where an override switches this off."""
    if OmegaConf.select(given, "algorithm.kl") != "none":
        return tree
    if OmegaConf.select(tree, "algorithm.kl", default="none") == "none":
        return tree  # where nothing is switched off, a weight is a mistake that is told
    tree = copy.deepcopy(tree)
    for name in ("kl_coefficient", "kl_target"):
        tree.algorithm.pop(name, None)
    return tree


def _read(overrides: Sequence[str]) -> DictConfig:
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not equals or not key:
            raise ConfigError(f"{override!r}: an override reads key=value, such as train.steps=5")
        try:
            OmegaConf.from_dotlist([override])
        except _UNFIT as error:
            raise ConfigError(f"{override}: cannot be read: {_first_line(error)}") from error
    return OmegaConf.from_dotlist(list(overrides))


def arguments(overrides: Sequence[str]) -> dict[str, Any]:
    """`key=value` texts as plain values, read as a configuration's.

    Raises:
        ConfigError: one that is no `key=value`.
    """
    try:
        return cast(dict[str, Any], OmegaConf.to_container(_read(overrides)))
    except _UNFIT as error:
        raise ConfigError(f"{', '.join(overrides)}: {_first_line(error)}") from error


def _settle(config: Config) -> None:
    """Check the values, and let the modules that they name be found."""
    if isinstance(config.devices.source, ListConfig | tuple):
        config.devices.source = list(config.devices.source)
    validate(config)
    path_of(config.run.dir, "run.dir")
    if config.warm_start is not None and config.warm_start.cache is not None:
        path_of(config.warm_start.cache, "warm_start.cache")
    for run in config.warm_start.recorded if config.warm_start else ():
        path_of(run, "warm_start.recorded")
    sys.path.extend(p for p in config.run.search_path if p not in sys.path)


def to_yaml(config: Config) -> str:
    """The whole tree as YAML."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def to_dict(config: Config) -> dict[str, Any]:
    """The whole tree as plain values."""
    return dataclasses.asdict(config)


def digest(config: Config) -> str:
    """Twelve hexadecimal digits that name a configuration, but not where its run lies."""
    tree = to_dict(config)
    del tree["run"]
    told = json.dumps(tree, sort_keys=True, default=str)
    return hashlib.blake2b(told.encode(), digest_size=6).hexdigest()


def from_dict(tree: dict[str, Any]) -> Config:
    """The inverse of `to_dict`.

    Raises:
        ConfigError: as `load`.
    """
    try:
        given = OmegaConf.create(tree)
        merged = OmegaConf.merge(_defaults(given), given)
        config = cast(Config, OmegaConf.to_object(merged))
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        raise ConfigError(_first_line(error)) from error
    _settle(config)
    return config


def _first_line(error: Exception) -> str:
    key = getattr(error, "full_key", None)
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    text = re.sub(_NO_LIST, "it must be a list, such as [A, B]", text)
    section = getattr(error, "object_type", None)
    if re.fullmatch(r"Key '.*' not in '\w+'", text) and dataclasses.is_dataclass(section):
        text += f"; there are {', '.join(field.name for field in dataclasses.fields(section))}"
    elif isinstance(error, MarkedYAMLError):
        text = error.problem or text
    return f"{key}: {text}" if key else text
