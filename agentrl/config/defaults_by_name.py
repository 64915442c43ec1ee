"""Sections whose settings depend on their `name`: `algorithm`, its `loss`, and `sampling`."""

from dataclasses import asdict, fields
from typing import Any, TypeVar

from agentrl.config.algorithm_settings import AlgorithmConfig, LossConfig
from agentrl.config.task_settings import SamplerConfig
from agentrl.errors import ConfigError
from agentrl.extension_points import ALGORITHM, LOSS, SAMPLER, ExtensionPoint

C = TypeVar("C", AlgorithmConfig, LossConfig, SamplerConfig)

DEFAULT_ALGORITHM = "state_grpo"
DEFAULT_SAMPLER = "uniform"
_FLAGS = "@dataclass(kw_only=True)"


def algorithm_defaults(name: str = DEFAULT_ALGORITHM, loss: str | None = None) -> AlgorithmConfig:
    """Return the default settings of an algorithm.

    Args:
        name: name of the algorithm.
        loss: name of its policy loss; None uses the algorithm's default.

    Raises:
        ConfigError: the algorithm or loss does not exist, or has no usable `Config`.
    """
    config = _defaults(ALGORITHM, name, AlgorithmConfig)
    if loss is not None and loss != config.loss.name:
        config.loss = _defaults(LOSS, loss, LossConfig)
    return config


def sampler_defaults(name: str = DEFAULT_SAMPLER) -> SamplerConfig:
    """Return the default settings of a sampler.

    Raises:
        ConfigError: the sampler does not exist, or has no usable `Config`.
    """
    return _defaults(SAMPLER, name, SamplerConfig)


def _defaults(point: ExtensionPoint, name: str, base: type[C]) -> C:
    settings = point.resolve(name).Config
    if not (isinstance(settings, type) and issubclass(settings, base)):
        raise ConfigError(
            f"{point.setting}={name}: its Config must be a subclass of "
            f"agentrl.config.{base.__name__}"
        )
    if "__dataclass_fields__" not in vars(settings):
        raise ConfigError(f"{point.setting}={name}: its Config must be decorated with {_FLAGS}")
    try:
        return settings(name=name)
    except TypeError as error:
        raise ConfigError(
            f"{point.setting}={name}: every setting of its Config needs a default: {error}"
        ) from error


def spell_out(tree: dict[str, Any]) -> None:
    """Expand `algorithm: NAME`, `algorithm.loss: NAME` and `sampling: NAME` to sections."""
    for key in ("algorithm", "sampling"):
        if isinstance(tree.get(key), str):
            tree[key] = {"name": tree[key]}
    section = tree.get("algorithm")
    if isinstance(section, dict) and isinstance(section.get("loss"), str):
        section["loss"] = {"name": section["loss"]}


def select_algorithm(tree: dict[str, Any], given: dict[str, Any]) -> AlgorithmConfig:
    """Return the defaults of the algorithm selected by a tree and by overrides.

    If overrides select another algorithm, remove from the tree settings that the new algorithm
    lacks, and settings equal to the old algorithm's defaults, because a run's saved configuration
    includes all defaults. If they select another loss, remove all settings of the old loss.
    """
    section, overrides = _section(tree), _section(given)
    # Each tuple contains the names of algorithm and loss; the loss is None for the algorithm's
    # default.
    before = _selected(section)
    after = _selected(overrides, default=before[0])
    old = algorithm_defaults(before[0])
    if after[0] != before[0]:
        section.pop("name", None)
        new = algorithm_defaults(after[0])
        _drop(section, asdict(old), {field.name for field in fields(new)})
    else:
        new = old
    loss_before = before[1] or old.loss.name
    loss = after[1] or _selected(section)[1] or new.loss.name
    if loss != loss_before:
        section.pop("loss", None)
    return algorithm_defaults(after[0], loss)


def select_sampler(tree: dict[str, Any], given: dict[str, Any]) -> SamplerConfig:
    """Return the defaults of the sampler selected by a tree and by overrides.

    If overrides select another sampler, remove settings from the tree as in `select_algorithm`.
    """
    section, overrides = _section(tree, "sampling"), _section(given, "sampling")
    before, _ = _selected(section, default=DEFAULT_SAMPLER)
    after, _ = _selected(overrides, default=before)
    new = sampler_defaults(after)
    if after != before:
        section.pop("name", None)
        _drop(section, asdict(sampler_defaults(before)), {field.name for field in fields(new)})
    return new


def _section(tree: dict[str, Any], key: str = "algorithm") -> dict[str, Any]:
    section = tree.get(key)
    return section if isinstance(section, dict) else {}


def _selected(section: dict[str, Any], default: str = DEFAULT_ALGORITHM) -> tuple[str, str | None]:
    name, loss = section.get("name"), section.get("loss")
    loss = loss.get("name") if isinstance(loss, dict) else None
    return (
        name if isinstance(name, str) else default,
        loss if isinstance(loss, str) else None,
    )


def _drop(tree: dict[str, Any], defaults: dict[str, Any], known: set[str]) -> None:
    """Remove unknown settings and settings equal to their defaults from a section at any depth."""
    for name in list(tree):
        if name not in known or tree[name] == defaults.get(name, _NOTHING):
            del tree[name]
        elif isinstance(tree[name], dict) and isinstance(defaults.get(name), dict):
            inner = defaults[name]
            if inner.get("name") == tree[name].get("name", inner.get("name")):
                _drop(tree[name], inner, set(inner))


_NOTHING = object()
"""A value that no setting equals, not even None."""


def without_kl(tree: dict[str, Any], given: dict[str, Any]) -> None:
    """Drop a tree's settings for the KL penalty if an override switches the penalty off."""
    kl, overrides = _section(tree).get("kl"), _section(given).get("kl")
    if not (isinstance(kl, dict) and isinstance(overrides, dict)):
        return
    # Otherwise, a coefficient without a penalty remains an error.
    if overrides.get("add_to") == "none" and kl.get("add_to", "none") != "none":
        for name in ("coefficient", "target"):
            kl.pop(name, None)
