"""Faults of a phone, set by `setprop debug.agentrl.fault.NAME VALUE` or by a fault plan.

::

    latency_ms      delay of every command: NUMBER, LOW-HIGH or lognormal:MEDIAN:SIGMA
    drop            probability that opening a service breaks the connection
    hang            probability that a command never answers
    offline_s       unreachable for this many seconds, then back on the same port; happens once
    reboot          unreachable for this many seconds, with all apps stopped; happens once
    capture         truncated, black, header, empty, secure or stale
    front           package to bring to the front, until BACK, HOME or `am start`
    dialog          anr, crash, call, permission, install or update: covers the app until a button
                    is pressed
    second_display  the focused window of a second, dark display
    user            number of the user in front; installed apps belong to that user alone
    rotation        0 to 3: orientation in which the phone is held
    input           lost: touches are accepted but ignored; or the window that receives them
    focus           focused window that `dumpsys window` reports, or null, whatever is shown
    slow_start_s    extra duration of `am start`
    publish_late_s  delay between an app's visible and its published state
    storage_mb      remaining space for files
"""

import math
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from virtual_phone.apps.dialogs import KINDS
from virtual_phone.errors import did_you_mean

_NUMBER = r"\d+(?:\.\d+)?"
_RANGE = re.compile(rf"({_NUMBER})(?:-({_NUMBER}))?")
_LOGNORMAL = re.compile(rf"lognormal:({_NUMBER}):({_NUMBER})")
_MAX_NUMBER = 1e6
_MAX_SIGMA = 10.0
PREFIX = "debug.agentrl.fault."
CAPTURES = ("truncated", "black", "header", "empty", "secure", "stale")
_OF_SERVICES = frozenset(("latency_ms", "drop", "hang"))
_MAX_NAME_LENGTH = 200
Check = Callable[[str], object]


@dataclass(slots=True, kw_only=True, frozen=True)
class Distribution:
    """`5` is constant, `5-20` uniform, `lognormal:40:0.5` log-normal with median 40 and sigma 0.5.

    `inf` means never.
    """

    low: float
    high: float
    sigma: float | None = None
    """Sigma of a log-normal distribution with median `low`; None for other distributions."""

    @staticmethod
    def parse(text: str) -> "Distribution":
        """Parse a distribution."""
        if text == "inf":
            return Distribution(low=math.inf, high=math.inf)
        if found := _RANGE.fullmatch(text):
            low = float(found[1])
            high = low if found[2] is None else float(found[2])
            if low <= high <= _MAX_NUMBER:
                return Distribution(low=low, high=high)
        if (found := _LOGNORMAL.fullmatch(text)) and float(found[2]) <= _MAX_SIGMA:
            median = float(found[1])
            if median <= _MAX_NUMBER:
                return Distribution(low=median, high=median, sigma=float(found[2]))
        raise ValueError(f"{text[:60]!r} must be NUMBER, LOW-HIGH or lognormal:MEDIAN:SIGMA")

    def draw(self, source: random.Random) -> float:
        """Draw a number."""
        if self.low == math.inf:
            return math.inf
        if self.sigma is None:
            return source.uniform(self.low, self.high)
        return min(_MAX_NUMBER, self.low * math.exp(source.gauss(0.0, self.sigma)))


def _probability(value: str) -> object:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ValueError(f"{value[:60]!r} is not a probability from 0 to 1")
    return number


def _one_of(*known: str) -> Check:
    def check(value: str) -> object:
        if value not in known:
            raise ValueError(f"{value[:60]!r} must be one of {', '.join(known)}")
        return value

    return check


def _word(value: str) -> object:
    if len(value) > _MAX_NAME_LENGTH or not value.isprintable():
        raise ValueError(f"{value[:60]!r} is not a valid name")
    return value


CHECKS: dict[str, Check] = {
    "latency_ms": Distribution.parse,
    "drop": _probability,
    "hang": _probability,
    "offline_s": Distribution.parse,
    "reboot": Distribution.parse,
    "capture": _one_of(*CAPTURES),
    "front": _word,
    "dialog": _one_of(*KINDS),
    "second_display": _word,
    "user": _word,
    "rotation": _one_of("0", "1", "2", "3"),
    "input": str,
    "focus": str,
    "slow_start_s": Distribution.parse,
    "publish_late_s": Distribution.parse,
    "storage_mb": Distribution.parse,
}
"""Checks by fault name; each raises ValueError for a value the fault does not accept."""


def check(name: str, value: str) -> None:
    """Validate the name and the value of a fault.

    Raises:
        ValueError: the name or the value is invalid; the message lists what is accepted.
    """
    if name not in CHECKS:
        raise ValueError(f"unknown fault {name[:60]!r}{did_you_mean(name, CHECKS)}")
    try:
        if value:
            CHECKS[name](value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def name_of(property: str) -> str | None:
    """Return the name of the fault a property sets; None for other properties."""
    return property.removeprefix(PREFIX) if property.startswith(PREFIX) else None


class Faults:
    """The active faults of one phone."""

    def __init__(self, source: random.Random, on_change: Callable[[str, str, str], None]) -> None:
        self._values: dict[str, str] = {}
        self._source = source
        # Called with the name, the old value and the new value; an empty value means no fault.
        self._on_change = on_change

    @property
    def slow_services(self) -> bool:
        """Whether to delay, drop or hang services."""
        return not _OF_SERVICES.isdisjoint(self._values)

    def set(self, name: str, value: str) -> None:
        """Set a fault; an empty value clears it."""
        check(name, value)
        old = self.get(name)
        self.forget(name)
        if value:
            self._values[name] = value
        self._on_change(name, old, value)

    def forget(self, name: str) -> None:
        """Clear a fault that has ended, without calling `on_change`."""
        self._values.pop(name, None)

    def clear(self) -> None:
        """Clear all faults."""
        for name in list(self._values):
            self.set(name, "")

    def get(self, name: str) -> str:
        """Return the value of a fault, or '' if it is not set."""
        return self._values.get(name, "")

    def draw(self, name: str) -> float:
        """Draw from the distribution of a fault; return 0 if the fault is not set."""
        value = self._values.get(name)
        return 0.0 if value is None else Distribution.parse(value).draw(self._source)

    def occurs(self, name: str) -> bool:
        """Draw whether a fault that has a probability occurs now."""
        value = self._values.get(name)
        return value is not None and self._source.random() < float(value)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Iterate over the names and values of the active faults."""
        return iter(sorted(self._values.items()))
