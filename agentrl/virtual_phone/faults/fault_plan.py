"""Faults as a user writes them: a YAML of what each phone suffers from, always and when.

::

    seed: 7                       # of everything that is drawn
    all:                          # every phone
      always: {latency_ms: "lognormal:20:0.6", drop: 0.002}
      schedule:
        - {at_s: 30, every_s: 120, for_s: 5, fault: capture, value: black}
        - {at_s: 10-60, every_s: 90, fault: dialog, value: anr, probability: 0.5}
    phones:                       # beside that, one phone by its number, from 0
      3:
        schedule:
          - {at_s: 60, fault: offline_s, value: 5}
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from agentrl.errors import ConfigError
from agentrl.text import did_you_mean
from agentrl.virtual_phone.faults import faults
from agentrl.virtual_phone.faults.distribution import Distribution

_WHEN = {"at_s": None, "every_s": None, "for_s": None}
_SHORTEST_S = 0.1


@dataclass(slots=True, kw_only=True, frozen=True)
class Event:
    """A fault that comes, and may go and come again."""

    fault: str
    value: str
    at_s: str = "0"
    """When it comes first, since the phone has started: a number or a distribution."""
    every_s: str | None = None
    """How long after it has come it comes again; None for once."""
    for_s: str | None = None
    """How long it stays; None until something else ends it."""
    probability: float = 1.0
    """That it happens when it is due."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PhoneFaults:
    """What one phone suffers from."""

    always: Mapping[str, str] = field(default_factory=dict)
    schedule: tuple[Event, ...] = ()


@dataclass(slots=True, kw_only=True, frozen=True)
class FaultPlan:
    """What all phones of a process suffer from."""

    seed: int = 0
    all: PhoneFaults = field(default_factory=PhoneFaults)
    phones: Mapping[int, PhoneFaults] = field(default_factory=dict)

    def of(self, number: int) -> PhoneFaults:
        """What one phone suffers from, what all do among it."""
        own = self.phones.get(number, PhoneFaults())
        return PhoneFaults(
            always={**self.all.always, **own.always}, schedule=self.all.schedule + own.schedule
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain values, which `read` takes again."""
        return asdict(self)


def load(path: str | Path) -> FaultPlan:
    """Read a plan from a YAML file.

    Raises:
        ConfigError: there is no such file, or it is no plan; the message names the place.
    """
    try:
        told = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"faults: {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"faults: {path} is no YAML: {error}") from error
    try:
        return read(told)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def read(told: object) -> FaultPlan:
    """Make a plan out of plain values, as they stand in a file.

    Raises:
        ConfigError: they are none; the message names the place.
    """
    tree = _mapping("faults", told or {}, ("seed", "all", "phones"))
    phones = _mapping("phones", tree.get("phones") or {}, None)
    for number in phones:
        if not str(number).isdecimal():
            raise ConfigError(f"faults.phones: {number!r} is no number of a phone, from 0")
    seed = tree.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ConfigError(f"faults.seed is {seed!r}; it must be a whole number")
    return FaultPlan(
        seed=seed,
        all=_phone("faults.all", tree.get("all") or {}),
        phones={int(n): _phone(f"faults.phones.{n}", one or {}) for n, one in phones.items()},
    )


def _phone(place: str, told: object) -> PhoneFaults:
    tree = _mapping(place, told, ("always", "schedule"))
    always = _mapping(f"{place}.always", tree.get("always") or {}, None)
    schedule = tree.get("schedule") or []
    if not isinstance(schedule, list | tuple):
        raise ConfigError(f"{place}.schedule must be a list, not {schedule!r}")
    return PhoneFaults(
        always={
            str(name): _value(f"{place}.always.{name}", str(name), value)
            for name, value in always.items()
        },
        schedule=tuple(_event(f"{place}.schedule[{n}]", one) for n, one in enumerate(schedule)),
    )


def _event(place: str, told: object) -> Event:
    tree = _mapping(place, told, ("fault", "value", "probability", *_WHEN))
    for name in ("fault", "value"):
        if tree.get(name) is None:
            raise ConfigError(f"{place} lacks {name}")
    fault = str(tree["fault"])
    probability = tree.get("probability", 1.0)
    if not _is_number(probability) or not 0 <= probability <= 1:
        raise ConfigError(f"{place}.probability is {probability!r}; it must be from 0 to 1")
    when = {name: _when(f"{place}.{name}", tree.get(name)) for name in _WHEN}
    if when["every_s"] is not None and Distribution.parse(when["every_s"]).low < _SHORTEST_S:
        raise ConfigError(f"{place}.every_s is {tree['every_s']!r}; at least {_SHORTEST_S:g}")
    return Event(
        fault=fault,
        value=_value(place, fault, tree["value"]),
        at_s=when["at_s"] or "0",
        every_s=when["every_s"],
        for_s=when["for_s"],
        probability=float(probability),
    )


def _value(place: str, name: str, told: object) -> str:
    """The value of a fault, as text that it can have."""
    text = "" if told is None else str(told)
    try:
        if not text:
            raise ValueError(f"{name} lacks a value")
        faults.check(name, text)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error
    return text


def _when(place: str, told: object) -> str | None:
    """A number of seconds, or how one is drawn."""
    if told is None:
        return None
    try:
        Distribution.parse(str(told))
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error
    return str(told)


def _is_number(told: object) -> bool:
    return isinstance(told, int | float) and not isinstance(told, bool)


def _mapping(place: str, told: object, keys: tuple[str, ...] | None) -> Mapping[Any, Any]:
    """A mapping that has no other keys than these; None allows any.

    Raises:
        ConfigError: it is none, or has another.
    """
    if not isinstance(told, Mapping):
        raise ConfigError(f"{place} must be a mapping, not {told!r}")
    for key in told:
        if keys is not None and key not in keys:
            raise ConfigError(
                f"{place} has no {key!r}{did_you_mean(str(key), keys)}; it has {', '.join(keys)}"
            )
    return told
