"""Checks of values that several sections share; each raises `ConfigError` with key and value."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_type_hints

from agentrl.errors import ConfigError

AUTO = "auto"
"""The value of settings that are derived from the model or the cluster."""
MAX_EPISODES = 100_000
"""Episodes of a step, in flight, or of an evaluation; anything above is a typo."""
_LONGEST_S = 1_000_000
"""Eleven days; socket timers overflow after 24."""
_LARGEST_NUMBER = 1_000_000_000_000
_TOGETHER = "they run at the same time"
_LARGEST: dict[str, tuple[int, str]] = {
    "max_turns": (100_000, "an episode is kept in memory until it ends"),
    "max_pixels": (1_000_000_000, "an image would not fit into memory"),
    "max_tokens": (100_000_000, "a conversation would not fit into memory"),
    "micro_batch_tokens": (100_000_000, "a row would not fit into memory"),
    "lr": (100, "every weight would be lost in the first step"),
    "weight_decay": (100, "every weight would be lost in the first step"),
    **dict.fromkeys(("batch", "minibatch"), (1_000_000, "a step would never end")),
    **dict.fromkeys(("steps", "lr_warmup_steps"), (1_000_000_000, "training would never end")),
    "processes": (1_000, _TOGETHER),
    **dict.fromkeys(("actors", "ranks", "replicas"), (100_000, _TOGETHER)),
    **dict.fromkeys(
        ("sequence_parallel", "tensor_parallel", "expert_parallel"), (100_000, _TOGETHER)
    ),
    **dict.fromkeys(
        ("episodes", "pool", "refills", "max_refills", "max_worker_restarts", "restarts"),
        (MAX_EPISODES, "anything above is a typo"),
    ),
}
"""The largest value of settings with such a name, and why."""
_PLAIN_LISTS = (list[str], list[int], list[float], list[str] | None, list[int] | None)


def check_positive(section: str, settings: object, *names: str) -> None:
    """Check that the named settings of a section are above 0."""
    for name in names:
        if not (value := getattr(settings, name)) > 0:
            raise ConfigError(f"{section}.{name}={value}: must be above 0")


def check_count(section: str, settings: object, name: str) -> None:
    """Check that a setting is a whole number above 0, or `auto`."""
    value = getattr(settings, name)
    if value != AUTO and (isinstance(value, str) or value <= 0):
        raise ConfigError(f"{section}.{name}={value!r}: must be a whole number above 0, or auto")


def check_not_negative(section: str, settings: object, *names: str) -> None:
    """Check that the named settings of a section are at least 0."""
    for name in names:
        if (value := getattr(settings, name)) < 0:
            raise ConfigError(f"{section}.{name}={value}: must not be below 0")


def check_at_most(section: str, settings: object, most: float, *names: str) -> None:
    """Check that the named settings of a section are not above `most`."""
    for name in names:
        if (value := getattr(settings, name)) > most:
            raise ConfigError(f"{section}.{name}={value}: must be at most {most}")


def check_size(key: str, size: Sequence[int] | None, least: int, most: int) -> None:
    """Check a width and a height; None is fine."""
    if size is not None and (len(size) != 2 or not least <= min(size) <= max(size) <= most):
        raise ConfigError(
            f"{key}={size}: must be [width, height] in pixels, both {least} to {most}"
        )


def check_betas(key: str, betas: Sequence[float]) -> None:
    """Check the two decays of AdamW."""
    if len(betas) != 2 or not 0 <= min(betas) <= max(betas) < 1:
        raise ConfigError(f"{key}={betas}: must be two decays, both at least 0 and below 1")


def check_floats(value: Any, key: str = "") -> None:
    """Check that every float inside a value is finite, and every duration a sensible one."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ConfigError(f"{key}={value}: must be a finite number")
        if key.endswith("_s") and value > _LONGEST_S:
            raise ConfigError(f"{key}={value}: must be at most {_LONGEST_S} seconds")
    elif isinstance(value, Mapping):
        for name, item in value.items():
            check_floats(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for number, item in enumerate(value):
            check_floats(item, f"{key}[{number}]")


def check_lists(section: Any) -> None:
    """Check that no list of texts or numbers contains a list or mapping: OmegaConf accepts them."""
    for key, hint, value in _settings(section):
        for item in (value or ()) if hint in _PLAIN_LISTS else ():
            if not isinstance(item, str | int | float):
                raise ConfigError(
                    f"{key}={value}: {item} is not a plain value; write a list such as [A, B]"
                )


def check_largest(section: Any) -> None:
    """Check that no number is so large that the job could not be meant or run."""
    for key, _, value in _settings(section):
        if isinstance(value, int | float):
            name = key.rpartition(".")[2]
            most, why = _LARGEST.get(name, (_LARGEST_NUMBER, "anything above is a typo"))
            if abs(value) > most:
                raise ConfigError(f"{key}={value}: must be at most {most:,}: {why}")


def largest(name: str) -> int:
    """The largest value of a number with this name."""
    usual = _LONGEST_S if name.endswith("_s") else _LARGEST_NUMBER
    return _LARGEST.get(name, (usual, ""))[0]


def _settings(section: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Key, type and value of each setting of a section and those in it."""
    for name, hint in get_type_hints(type(section)).items():
        value = getattr(section, name)
        if dataclasses.is_dataclass(value):
            yield from _settings(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", hint, value
