"""Fault plans: YAML files that list each phone's faults, permanent or scheduled.

::

    seed: 7                       # for all random draws
    all:                          # every phone
      always: {latency_ms: "lognormal:20:0.6", drop: 0.002}
      schedule:
        - {at_s: 30, every_s: 120, for_s: 5, fault: capture, value: black}
        - {at_s: 10-60, every_s: 90, fault: dialog, value: anr, probability: 0.5}
    phones:                       # additional faults of single phones, numbered from 0
      3:
        schedule:
          - {at_s: 60, fault: offline_s, value: 5}
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from virtual_phone.errors import SettingError, did_you_mean
from virtual_phone.faults import faults
from virtual_phone.faults.faults import Distribution, Faults

_WHEN = {"at_s": None, "every_s": None, "for_s": None}
_MIN_INTERVAL_S = 0.1


@dataclass(slots=True, kw_only=True, frozen=True)
class ScheduledFault:
    """A scheduled fault, possibly repeating."""

    fault: str
    value: str
    at_s: str = "0"
    """First occurrence, in seconds since the phone started: a number or a distribution."""
    every_s: str | None = None
    """Seconds between occurrences; None for a single occurrence."""
    for_s: str | None = None
    """Duration in seconds; with None, the fault lasts until something else ends it."""
    probability: float = 1.0
    """Probability of each occurrence."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PhoneFaults:
    """Permanent and scheduled faults of one phone."""

    always: Mapping[str, str] = field(default_factory=dict)
    schedule: tuple[ScheduledFault, ...] = ()


@dataclass(slots=True, kw_only=True, frozen=True)
class FaultPlan:
    """Faults of all phones of a process."""

    seed: int = 0
    all: PhoneFaults = field(default_factory=PhoneFaults)
    phones: Mapping[int, PhoneFaults] = field(default_factory=dict)

    def for_phone(self, number: int) -> PhoneFaults:
        """Return the faults of one phone, including the faults of all phones."""
        own = self.phones.get(number, PhoneFaults())
        return PhoneFaults(
            always={**self.all.always, **own.always}, schedule=self.all.schedule + own.schedule
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that `read` accepts."""
        return asdict(self)


def load(path: str | Path) -> FaultPlan:
    """Load a plan from a YAML file.

    Raises:
        SettingError: the file cannot be read or is not a valid plan; the message names the key.
    """
    import yaml  # not at the top: each phone process imports this module

    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"faults: {path} cannot be read: {error}") from error
    except (RecursionError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        why = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise SettingError(f"faults: {path}{line} is not valid YAML: {why}") from error
    try:
        return read(values)
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from error


def read(values: object) -> FaultPlan:
    """Build a plan from plain values, as loaded from a file.

    Raises:
        SettingError: the values are invalid; the message names the key.
    """
    tree = _mapping("faults", values or {}, ("seed", "all", "phones"))
    phones = _mapping("phones", tree.get("phones") or {}, None)
    for number in phones:
        if not str(number).isdecimal():
            raise SettingError(f"faults.phones: {number!r} is not a phone number; use 0, 1, ...")
    seed = tree.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise SettingError(f"faults.seed is {seed!r}; it must be an integer")
    return FaultPlan(
        seed=seed,
        all=_phone("faults.all", tree.get("all") or {}),
        phones={int(n): _phone(f"faults.phones.{n}", tree or {}) for n, tree in phones.items()},
    )


def _phone(key: str, values: object) -> PhoneFaults:
    tree = _mapping(key, values, ("always", "schedule"))
    always = _mapping(f"{key}.always", tree.get("always") or {}, None)
    schedule = tree.get("schedule") or []
    if not isinstance(schedule, list | tuple):
        raise SettingError(f"{key}.schedule must be a list, not {schedule!r}")
    return PhoneFaults(
        always={
            str(name): _value(f"{key}.always.{name}", str(name), value)
            for name, value in always.items()
        },
        schedule=tuple(_event(f"{key}.schedule[{n}]", item) for n, item in enumerate(schedule)),
    )


def _event(key: str, values: object) -> ScheduledFault:
    tree = _mapping(key, values, ("fault", "value", "probability", *_WHEN))
    for name in ("fault", "value"):
        if tree.get(name) is None:
            raise SettingError(f"{key}.{name} is required")
    fault = str(tree["fault"])
    probability = tree.get("probability", 1.0)
    is_number = isinstance(probability, int | float) and not isinstance(probability, bool)
    if not is_number or not 0 <= probability <= 1:
        raise SettingError(f"{key}.probability is {probability!r}; it must be from 0 to 1")
    when = {name: _when(f"{key}.{name}", tree.get(name)) for name in _WHEN}
    if when["every_s"] is not None and Distribution.parse(when["every_s"]).low < _MIN_INTERVAL_S:
        raise SettingError(
            f"{key}.every_s is {tree['every_s']!r}; it must be at least {_MIN_INTERVAL_S:g}"
        )
    return ScheduledFault(
        fault=fault,
        value=_value(key, fault, tree["value"]),
        at_s=when["at_s"] or "0",
        every_s=when["every_s"],
        for_s=when["for_s"],
        probability=float(probability),
    )


def _value(key: str, name: str, value: object) -> str:
    """Validate the value of a fault and return it as text."""
    text = "" if value is None else str(value)
    try:
        if not text:
            raise ValueError(f"{name} needs a value")
        faults.check(name, text)
    except ValueError as error:
        raise SettingError(f"{key}: {error}") from error
    return text


def _when(key: str, value: object) -> str | None:
    """Validate a number of seconds or a distribution and return it as text."""
    if value is None:
        return None
    try:
        Distribution.parse(str(value))
    except ValueError as error:
        raise SettingError(f"{key}: {error}") from error
    return str(value)


def _mapping(key: str, values: object, names: tuple[str, ...] | None) -> Mapping[Any, Any]:
    """Check that `values` is a mapping with known keys only; `names=None` allows any key."""
    if not isinstance(values, Mapping):
        raise SettingError(f"{key} must be a mapping, not {values!r}")
    for name in values:
        if names is not None and name not in names:
            raise SettingError(
                f"{key} has no key {name!r}{did_you_mean(str(name), names)}. "
                f"Its keys are {', '.join(names)}"
            )
    return values


class FaultSchedule:
    """Sets and clears the faults of one phone on schedule."""

    def __init__(self, faults: Faults, plan: FaultPlan, number: int) -> None:
        self._faults = faults
        self._plan = plan.for_phone(number)
        self._random = random.Random(f"plan/{plan.seed}/{number}")
        self._loop = asyncio.get_running_loop()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self.set_permanent()
        for index, event in enumerate(self._plan.schedule):
            self._wait(index, event, event.at_s)

    def set_permanent(self) -> None:
        """Set the permanent faults. Call this again after a reboot, which clears them."""
        for name, value in self._plan.always.items():
            self._faults.set(name, value)

    def close(self) -> None:
        """Cancel the schedule."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _wait(self, index: int, event: ScheduledFault, delay: str) -> None:
        delay_s = self._draw(delay)
        self._timers[index] = self._loop.call_later(delay_s, self._begin, index, event)

    def _begin(self, index: int, event: ScheduledFault) -> None:
        if event.every_s is not None:
            self._wait(index, event, event.every_s)
        # Draw for every occurrence, so that runs are reproducible.
        if self._random.random() >= event.probability:
            return
        self._faults.set(event.fault, event.value)
        if event.for_s is not None:
            key = -1 - index  # distinct from the timer of the next occurrence
            delay_s = self._draw(event.for_s)
            self._timers[key] = self._loop.call_later(delay_s, self._finish_occurrence, event)

    def _finish_occurrence(self, event: ScheduledFault) -> None:
        """End an occurrence and restore the permanent value of the fault."""
        if self._faults.get(event.fault) == event.value:
            self._faults.set(event.fault, self._plan.always.get(event.fault, ""))

    def _draw(self, text: str) -> float:
        return Distribution.parse(text).draw(self._random)
