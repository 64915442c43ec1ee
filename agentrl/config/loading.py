"""Converts YAML files and overrides to configurations and back; the only user of OmegaConf."""

import dataclasses
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from agentrl.config import defaults_by_name, other_trainers
from agentrl.config.algorithm_settings import AlgorithmConfig
from agentrl.config.job_config import Config
from agentrl.config.reward_settings import RewardConfig
from agentrl.config.task_settings import SamplerConfig
from agentrl.config.type_checks import find_mistyped
from agentrl.errors import ConfigError, with_short_mistakes
from agentrl.files import StrPath, path_of
from agentrl.text.name_suggestions import did_you_mean, known_names, list_names

_UNFIT = (OmegaConfBaseException, YAMLError, TypeError, ValueError, RecursionError)
"""Exceptions raised by OmegaConf for a tree that does not fit the sections."""
_DATA_FILES = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
"""Suffixes of data sets, which users may pass where a configuration is expected."""
RUN_PROMPT = "prompt.jinja"
"""Name of a run's copy of its prompt template, in the run's folder."""
RESTORE = "Restore the file, or start a new run"
"""Advice about a damaged file of a run, for messages."""
_PACKAGED = Path(__file__).resolve().parent.parent / "configs"


def is_packaged(name: str) -> bool:
    """Return whether a configuration with this name comes with agentrl."""
    return name in packaged_names()


def find(name: str) -> Path:
    """Find the file of a configuration, given a path or the name of a packaged configuration.

    Raises:
        ConfigError: the file does not exist.
    """
    path = path_of(name, "configuration")
    if path.is_file():
        return path
    packaged = path.with_suffix("").as_posix()
    if path.suffix in ("", ".yaml") and packaged in packaged_names():
        return _PACKAGED / f"{packaged}.yaml"
    if path.is_dir():
        file = path / "config.yaml"
        use = f"use {file}, or continue the run with --resume" if file.is_file() else "use a file"
        raise ConfigError(f"{name}: is a folder, not a configuration; {use}")
    hint = known_names(name, packaged_names(), label="Packaged")
    if path.suffix in (".yaml", ".yml"):
        # The suffix alone would make short names similar, so compare names without it.
        own = did_you_mean(path.stem, sorted(file.stem for file in path.parent.glob("*.y*ml")))
        beside = re.sub(r"'(.+?)'", rf"'\1{path.suffix}'", own)
        packaged_too = did_you_mean(path.stem, packaged_names()) if len(path.parts) == 1 else ""
        hint = beside or packaged_too or f"; create one with: agentrl init {path}"
    raise ConfigError(f"{name}: no such configuration{hint}")


def packaged_names() -> list[str]:
    """Return the names of configurations that come with agentrl, such as `recipes/r1v_geoqa`."""
    files = (*_PACKAGED.glob("*.yaml"), *_PACKAGED.glob("recipes/*.yaml"))
    return sorted(file.relative_to(_PACKAGED).with_suffix("").as_posix() for file in files)


def _is_in_package(path: Path) -> bool:
    return path.resolve().is_relative_to(_PACKAGED.resolve())


def packaged_job(env: str, model: str) -> Path | None:
    """Return the first packaged configuration that trains a model on an environment, if any."""
    for file in sorted(_PACKAGED.glob("*.yaml")):
        tree = read_yaml(file)
        if tree["env"]["id"] == env and tree["model"]["path"] == model:
            return file
    return None


@with_short_mistakes
def load(source: StrPath, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file or a packaged configuration and apply `key=value` overrides.

    Raises:
        ConfigError: a key is unknown, a value is invalid, has the wrong type or is missing
            (`???`), or the file is not YAML.
    """
    path = find(os.fspath(source))
    own = [] if _is_in_package(path) else [str(path.parent.absolute())]
    if path.suffix.lower() in _DATA_FILES:
        raise ConfigError(
            f"{path}: is a data set, not a configuration; create one for it with `agentrl init "
            f"CONFIG.yaml --data {path}`"
        )
    belongs_to_run = path.name == "config.yaml" and (path.parent / "episodes").is_dir()
    tree = _load_yaml(path, RESTORE if belongs_to_run else "Correct it")
    if not isinstance(tree, DictConfig):
        raise ConfigError(f"{path}: must contain keys and values, not {type(tree).__name__}")
    # A run keeps a copy of its template, which is found even if the run was moved.
    prompt = path.parent / RUN_PROMPT
    if belongs_to_run and prompt.is_file():
        OmegaConf.update(tree, "env.prompt", str(prompt.absolute()))
    return _validated(_merged(tree, overrides, path, own), own)


def _validated(config: Config, search_path: Sequence[str] = ()) -> Config:
    config.run.search_path = config.run.search_path or [*search_path]
    config.validate()
    _make_importable(config.run.search_path)
    return config


def load_merged(
    base: str | None, trees: Sequence[Mapping[str, Any]], overrides: Sequence[str], where: Path
) -> Config:
    """Merge several settings trees into a configuration; later trees take precedence.

    Args:
        base: YAML file or packaged name to which the trees are added; None for the defaults.
        trees: plain values by section.
        overrides: see `load`.
        where: the file that the trees come from, for messages and imports.

    Raises:
        ConfigError: see `load`.
    """
    own = [str(where.parent.absolute())]
    if base is not None and not _is_in_package(file := find(base)):
        own.append(str(file.parent.absolute()))
    try:
        first = OmegaConf.create() if base is None else OmegaConf.load(find(base))
        tree = OmegaConf.merge(first, *(OmegaConf.create(dict(one)) for one in trees))
    except _UNFIT as error:
        raise ConfigError(f"{where}: {_first_line(error)}") from None
    return _validated(_merged(cast(DictConfig, tree), overrides, where, own), own)


def resolve(source: Config | StrPath, overrides: Sequence[str] = ()) -> Config:
    """Return a configuration as given, or load it by file or packaged name; apply overrides.

    Raises:
        ConfigError: see `load`.
    """
    if not isinstance(source, Config):
        return load(source, overrides)
    if overrides:
        source = _merged(OmegaConf.create(source.to_dict()), overrides, "the configuration", [])
    return _validated(source)


def with_absolute_paths(config: Config) -> Config:
    """Return the configuration with absolute paths.

    An environment may change the current folder. Modules named by a relative path are still
    imported from the folder that is current now.
    """

    def absolute(path: str) -> str:
        return os.path.abspath(Path(path).expanduser())

    _make_importable([os.getcwd()])
    folders = [absolute(folder) for folder in config.run.search_path]
    sections: dict[str, Any] = {}
    sections["run"] = replace(config.run, dir=absolute(config.run.dir), search_path=folders)
    if config.model.path != "tiny" and path_of(config.model.path, "model.path").exists():
        sections["model"] = replace(config.model, path=absolute(config.model.path))
    sections["algorithm"] = config.algorithm.with_absolute_paths(
        lambda path: absolute(path) if Path(path).expanduser().exists() else path
    )
    if (warm := config.warm_start) is not None:
        cache = None if warm.cache is None else absolute(warm.cache)
        recorded = [absolute(run) for run in warm.recorded]
        sections["warm_start"] = replace(warm, cache=cache, recorded=recorded)
    for name in ("sft", "dpo", "reward_model"):
        section = getattr(config, name)
        for part in ("train", "eval"):
            data = getattr(section, part, None)
            if data is not None and data.image_root is not None:
                moved = replace(data, image_root=absolute(data.image_root))
                sections[name] = replace(sections.get(name, section), **{part: moved})
    return replace(config, **sections)


def read_yaml(path: Path, remedy: str = "Correct it") -> Any:
    """Read a YAML file as plain values, rejecting aliases that repeat without end.

    Args:
        path: the file.
        remedy: advice about a damaged file, for the message.

    Raises:
        ConfigError: the file cannot be read.
    """
    return OmegaConf.to_container(_load_yaml(path, remedy))


def _load_yaml(path: Path, remedy: str) -> DictConfig | ListConfig:
    try:
        return OmegaConf.load(path)
    except (*_UNFIT, OSError) as error:
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        line = "" if mark is None else f", line {mark.line + 1}"
        why = _first_line(error)
        raise ConfigError(f"{path}{line}: cannot be read: {why}. {remedy}.") from None


def _merged(
    tree: DictConfig, overrides: Sequence[str], path: Path | str, search_path: Sequence[str]
) -> Config:
    """Update the defaults with a tree and overrides; `path` names the tree in messages."""
    given, tree = _read(overrides), _spelled_out(tree)
    try:
        both = OmegaConf.merge(tree, given)
        # An algorithm, loss or sampler named in the tree may be in a user's file.
        _make_importable(OmegaConf.select(both, "run.search_path") or search_path)
        merged = _over_defaults(tree, given)
        # Check `both`, because in `merged` the default has replaced a missing value.
        left_open = sorted(OmegaConf.missing_keys(both))
        if left_open:
            raise ConfigError(
                f"{path}: {left_open[0]} has no default; set it in the file, or pass "
                f"'{left_open[0]}=...'"
            )
        config = cast(Config, OmegaConf.to_object(merged))
        return config if _has_warm_start(tree, overrides) else replace(config, warm_start=None)
    except _UNFIT as error:
        raise ConfigError(_error_message(error, tree, overrides, path)) from None


def _has_warm_start(tree: DictConfig, overrides: Sequence[str]) -> bool:
    """Return whether a job has a warm start, which an override of `_CACHING` alone does not add.

    OmegaConf would fill the section with its defaults, even after `warm_start=null`.
    """
    has_one = tree.get("warm_start") is not None
    for override in overrides:
        key = override.partition("=")[0]
        if key == "warm_start":
            has_one = OmegaConf.from_dotlist([override]).warm_start is not None
        elif key.startswith("warm_start.") and key not in _CACHING:
            has_one = True
    return has_one


_CACHING = ("warm_start.cache", "warm_start.repeat")
"""Settings of whether a warm start is repeated; they start none."""


def _over_defaults(tree: DictConfig, given: DictConfig) -> DictConfig:
    """Merge the tree with the defaults, without checking for missing values."""
    own, overrides = _with_names(tree), _with_names(given)
    defaults = _defaults_with(
        defaults_by_name.select_algorithm(own, overrides),
        defaults_by_name.select_sampler(own, overrides),
    )
    defaults_by_name.without_kl(own, overrides)
    return cast(DictConfig, OmegaConf.merge(defaults, OmegaConf.create(own), given))


_DEFAULTS: dict[tuple[object, ...], DictConfig] = {}


def _defaults_with(algorithm: AlgorithmConfig, sampling: SamplerConfig) -> DictConfig:
    """Return the tree of all defaults to merge with; cached, because OmegaConf is slow."""
    chosen = (algorithm, algorithm.loss, sampling)
    key = tuple((type(one), one.name) for one in chosen)
    if key not in _DEFAULTS:
        _DEFAULTS[key] = OmegaConf.structured(Config(algorithm=algorithm, sampling=sampling))
    return _DEFAULTS[key]


def _with_names(tree: DictConfig) -> dict[str, Any]:
    """Return a tree as plain values, with the names of algorithm, loss and sampler resolved."""
    values = cast(dict[str, Any], OmegaConf.to_container(tree))
    for key in ("algorithm", "algorithm.loss", "sampling"):
        section = OmegaConf.select(tree, key)
        name = section.get("name") if isinstance(section, DictConfig) else None
        if isinstance(name, str):
            put(values, f"{key}.name", name)
    return values


def put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key, creating sections as needed."""
    *path, name = key.split(".")
    for part in path:
        if not isinstance(tree.get(part), dict):
            tree[part] = {}
        tree = tree[part]
    tree[name] = value


def _spelled_out(tree: DictConfig) -> DictConfig:
    values = cast(dict[str, Any], OmegaConf.to_container(tree))
    defaults_by_name.spell_out(values)
    return OmegaConf.create(values)


_NAMING = {
    f"{key}{end}" for key in ("algorithm", "algorithm.loss", "sampling") for end in ("", ".name")
}
"""Keys whose values determine which settings a section has."""


def _error_message(
    error: Exception, tree: DictConfig, overrides: Sequence[str], path: Path | str
) -> str:
    """Format an error, prefixed with the override that causes it, or with the file."""
    # OmegaConf merges all overrides at once and does not say which one failed: try each alone,
    # after the overrides that select an algorithm, loss or sampler, which determine its settings.
    names = [one for one in overrides if one.partition("=")[0] in _NAMING]
    tried = ((given, _misfit(tree, given)) for given in (names, *([*names, o] for o in overrides)))
    given, cause = next((one for one in tried if one[1] is not None), (None, None))
    if given is None or cause is None:  # a combination of overrides, or an interpolation
        key = getattr(error, "full_key", None)
        return (
            _first_line(error) if key else f"{', '.join(overrides) or path}: {_first_line(error)}"
        )
    if given == names and (not names or _misfit(OmegaConf.create(), names) is None):
        return f"{path}: {_type_message(tree) or _first_line(cause)}"
    wrong = given[-1]
    written = wrong.partition("=")[0]
    mistyped = find_mistyped(OmegaConf.to_container(_read([wrong])), Config)
    message = ": ".join(mistyped) if mistyped else _first_line(cause, written)
    return f"{wrong}: {message.removeprefix(f'{written}: ')}"


def _type_message(tree: DictConfig) -> str | None:
    """Describe the first value of a wrong type in a tree, with its key; None if there is none."""
    found = find_mistyped(OmegaConf.to_container(tree), Config)
    return None if found is None else ": ".join(found)


def _misfit(tree: DictConfig, overrides: Sequence[str]) -> Exception | None:
    """Return the error if a tree with overrides does not fit the sections, or None if it fits."""
    try:
        _over_defaults(tree, _read(overrides))
    except _UNFIT as error:
        return error
    return None


def _read(overrides: Sequence[str]) -> DictConfig:
    trees = [OmegaConf.create()]
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key or key != key.strip():
            raise ConfigError(
                f"{override!r}: overrides are written key=value, such as optim.lr=1e-5, without "
                "spaces before ="
            )
        try:
            trees.append(_spelled_out(OmegaConf.from_dotlist([override])))
        except _UNFIT as error:
            # YAML reads braces as a mapping, also those of a template.
            quoted = f"; if it is text, write {key}='\"{value}\"'" if "{{" in value else ""
            why = _first_line(error)
            raise ConfigError(f"{override}: cannot be read: {why}{quoted}") from None
    return cast(DictConfig, OmegaConf.merge(*trees))


def arguments(overrides: Sequence[str]) -> dict[str, Any]:
    """Parse `key=value` strings in the syntax of overrides to plain values.

    Raises:
        ConfigError: a string is not `key=value`.
    """
    try:
        return cast(dict[str, Any], OmegaConf.to_container(_read(overrides)))
    except _UNFIT as error:
        raise ConfigError(f"{', '.join(overrides)}: {_first_line(error)}") from None


def _make_importable(folders: Any) -> None:
    """Make the modules named in a configuration importable from these folders."""
    if isinstance(folders, Sequence) and not isinstance(folders, str):
        sys.path.extend(str(folder) for folder in folders if str(folder) not in sys.path)


def to_yaml(tree: Mapping[str, Any]) -> str:
    """Format a configuration (`Config.to_dict`) as YAML."""
    return OmegaConf.to_yaml(OmegaConf.create(dict(tree)))


def from_dict(tree: dict[str, Any]) -> Config:
    """Make a configuration from plain values; the inverse of `Config.to_dict`.

    Raises:
        ConfigError: see `load`.
    """
    given = _spelled_out(OmegaConf.create(tree))
    _make_importable(OmegaConf.select(given, "run.search_path"))
    try:
        config = cast(Config, OmegaConf.to_object(_over_defaults(OmegaConf.create(), given)))
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        raise ConfigError(_type_message(given) or _first_line(error)) from None
    return _validated(config)


def load_rewards(path: Path) -> list[RewardConfig]:
    """Load the reward functions in a YAML file: its `rewards`, or the single one it describes.

    Raises:
        ConfigError: see `load`.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    tree = read_yaml(path)
    given = tree.get("rewards", [tree] if tree else []) if isinstance(tree, dict) else tree
    _make_importable([path.parent.absolute()])
    try:
        rewards = from_dict({"rewards": given}).rewards
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not rewards:
        raise ConfigError(f"{path}: has no rewards; write {{function: ..., kwargs: {{...}}}}")
    return rewards


def algorithm_config(name: str, **settings: Any) -> AlgorithmConfig:
    """Return an algorithm's default settings, updated with the given ones; sections are mappings.

    Example:
        ```python
        algorithm_config("dapo", epochs=2, loss={"clip_low": 0.1})
        ```

    Raises:
        ConfigError: see `load`.
    """
    return from_dict({"algorithm": {"name": name, **settings}}).algorithm


def _elsewhere(key: str) -> str:
    """Suggest a setting in another section, or the equivalent of another trainer's setting."""
    section, _, name = key.rpartition(".")
    if theirs := other_trainers.suggestion(name if section == "train" else key):
        return theirs
    if "." in section:  # a nested section, such as algorithm.loss, has its own settings
        return ""
    sections = Config().to_dict().items()
    places = [f"{at}.{name}" for at, one in sections if isinstance(one, dict) and name in one]
    if places:
        return f"did you mean {' or '.join(map(repr, places))}?"
    theirs = other_trainers.suggestion(name) if section else ""
    return theirs or other_trainers.suggestion(key, by_end=True)


def _known_settings(key: str, section: type[Any]) -> str:
    """List the settings of a section that are closest to an unknown setting, or else all."""
    within, _, name = key.rpartition(".")
    names = [field.name for field in dataclasses.fields(section)]
    all_of_them = list_names(names, "agentrl train CONFIG --print-config")
    return did_you_mean(name, names) or f"; {within or 'the configuration'} has {all_of_them}"


def _first_line(error: Exception, key: str | None = None) -> str:
    """Return the first line of an error's message, after the key that it is about.

    Args:
        error: the error.
        key: the whole key that the user wrote; None uses the key named in the error.
    """
    key = key or getattr(error, "full_key", None)
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    section: Any = getattr(error, "object_type", None)
    if re.match(r"Key '.*' not in '\w+'", text) and section is not None:
        hint = _elsewhere(str(key))
        unknown = getattr(error, "full_key", None) or str(key)  # the key may be just the section
        text = f"no such setting{f' ({hint})' if hint else _known_settings(unknown, section)}"
    elif isinstance(error, MarkedYAMLError):
        text = error.problem or text
    return f"{key}: {text}" if key else text
