"""Intents: what `am` starts or broadcasts."""

from collections.abc import Iterator
from dataclasses import dataclass, field

_EXTRAS = frozenset((
    "--es", "-e", "--ei", "--ez", "--el", "--ef", "--ed", "--eu", "--ecn", "--eia", "--esa",
    "--ela", "--efa",
))  # fmt: skip
_VALUES = frozenset((
    "-n", "-a", "-c", "-d", "-f", "-t", "-p", "--user", "--display", "--windowingMode",
    "--activityType",
))  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Intent:
    """What `am` starts or broadcasts."""

    component: str = ""
    action: str = ""
    category: str = ""
    data: str = ""
    package: str = ""
    extras: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        """As `am` prints it."""
        named = {"act": self.action, "cat": self.category and f"[{self.category}]"}
        named |= {"dat": self.data, "pkg": self.package, "cmp": self.component}
        parts = [f"{key}={value}" for key, value in named.items() if value]
        return f"Intent {{ {' '.join([*parts, *(['(has extras)'] if self.extras else [])])} }}"


def read_intent(arguments: list[str]) -> Intent:
    """Parse the arguments of `am`.

    Raises:
        ValueError: the value of an option is missing.
    """
    intent, left = Intent(), iter(arguments)
    names = {"-n": "component", "-a": "action", "-c": "category", "-d": "data", "-p": "package"}
    for option in left:
        if option == "--esn":
            intent.extras[_next(left, option)] = ""
        elif option in _EXTRAS:
            key = _next(left, option)
            intent.extras[key] = _next(left, option)
        elif option in _VALUES:
            value = _next(left, option)
            if option in names:
                setattr(intent, names[option], value)
        elif option.startswith("-"):
            intent.flags.add(option)
        elif "/" in option and "://" not in option:
            intent.component = option
        elif ":" in option:
            intent.data = option
        else:
            intent.package = option
    return intent


def _next(left: Iterator[str], option: str) -> str:
    value = next(left, None)
    if value is None:
        raise ValueError(f"Argument expected after {option!r}")
    return value
