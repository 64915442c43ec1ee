"""The entries of `logging`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.errors import ConfigError


@dataclass(slots=True, kw_only=True, frozen=True)
class LoggerConfig:
    """One destination of metrics."""

    name: str
    """A built-in or installed name, `module:Class` or `path/file.py:Class`."""
    kwargs: Mapping[str, Any]
    """Keyword arguments of its class, besides the run's folder and the planned work."""
    optional: bool
    """Whether it is left out where its library is not installed."""


def parse_loggers(entries: Sequence[Any]) -> list[LoggerConfig]:
    """Parse `logging`; an entry that occurs twice is returned once.

    Raises:
        ConfigError: an entry is neither a name nor `{name: ..., kwargs: {...}}`.
    """
    found: list[LoggerConfig] = []
    for entry in entries:
        given: Any = {"name": entry} if isinstance(entry, str) else entry
        is_logger = (
            isinstance(given, Mapping)
            and given.keys() <= {"name", "kwargs"}
            and isinstance(given.get("name"), str)
            and isinstance(given.get("kwargs") or {}, Mapping)
        )
        if not is_logger:
            raise ConfigError(
                f"logging: {entry!r} must be a name, or {{name: ..., kwargs: {{...}}}}"
            )
        name, kwargs = given["name"], dict(given.get("kwargs") or {})
        bare = name.removesuffix("?")
        if not any(one.name == bare and one.kwargs == kwargs for one in found):
            found.append(LoggerConfig(name=bare, kwargs=kwargs, optional=name != bare))
    return found
