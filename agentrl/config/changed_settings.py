"""Settings of a job that differ from the defaults."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from agentrl.config.defaults_by_name import (
    DEFAULT_ALGORITHM,
    DEFAULT_SAMPLER,
    algorithm_defaults,
    sampler_defaults,
)
from agentrl.config.job_config import Config


def changed_settings(config: Config) -> dict[str, Any]:
    """Return the smallest configuration that describes the same job.

    Returns:
        Plain values, as accepted by `from_dict`. `algorithm` is compared with the defaults of the
        algorithm and loss that it names, and likewise `sampling` with its sampler's.
    """
    name, loss, sampler = config.algorithm.name, config.algorithm.loss.name, config.sampling.name
    defaults = Config(algorithm=algorithm_defaults(name, loss), sampling=sampler_defaults(sampler))
    changed = _difference(config, defaults)
    if sampler != DEFAULT_SAMPLER:
        changed["sampling"] = {"name": sampler, **changed.get("sampling", {})}
    algorithm: dict[str, Any] = changed.get("algorithm", {})
    if loss != algorithm_defaults(name).loss.name:
        algorithm = {**algorithm, "loss": {"name": loss, **algorithm.get("loss", {})}}
    if name != DEFAULT_ALGORITHM:
        algorithm = {"name": name, **algorithm}
    return {**changed, "algorithm": algorithm} if algorithm else changed


def flat_settings(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings to dotted keys; an empty section becomes `{}`."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat |= flat_settings(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _difference(section: Any, default: Any) -> dict[str, Any]:
    """Return the fields of a section that differ from another section of the same type."""
    pairs = {f.name: (getattr(section, f.name), getattr(default, f.name)) for f in fields(section)}
    return {name: _plain(*pair) for name, pair in pairs.items() if pair[0] != pair[1]}


def _plain(value: Any, default: Any) -> Any:
    if is_dataclass(value) and type(value) is type(default):
        return _difference(value, default)
    if is_dataclass(value):  # a section that is None by default, or a list item
        given = {field.name: getattr(value, field.name) for field in fields(value)}
        usual = {field.name: _default(field) for field in fields(value)}
        return {n: _plain(one, usual[n]) for n, one in given.items() if one != usual[n]}
    if isinstance(value, list):
        return [_plain(item, None) for item in value]
    return value


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
