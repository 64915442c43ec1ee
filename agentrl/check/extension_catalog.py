"""Names of every kind of extension and their origins (`agentrl list`)."""

import inspect
import sys
from dataclasses import dataclass
from typing import Any

from agentrl import extension_points, extras
from agentrl.errors import ConfigError
from agentrl.extension_points import ExtensionPoint
from agentrl.text.name_suggestions import known_names


@dataclass(slots=True, kw_only=True, frozen=True)
class Listed:
    """One name of a kind, with its description."""

    name: str
    origin: str
    """`agentrl`, or the installed distribution that provides the extension."""
    description: str
    """The first line of the extension's docstring, or why the extension cannot be loaded."""
    target: str
    """`module:name`, or a built-in extension's module."""


def points() -> dict[str, ExtensionPoint]:
    """Return all extension points by kind."""
    found = vars(extension_points).values()
    return {point.kind: point for point in found if isinstance(point, ExtensionPoint)}


def point_of(kind: str) -> ExtensionPoint:
    """Return the extension point of a kind.

    Raises:
        ConfigError: there is no such kind.
    """
    known = points()
    if kind not in known:
        hint = known_names(kind, known, command="agentrl list", label="Kinds")
        raise ConfigError(f"{kind!r} is not a kind of extension{hint}")
    return known[kind]


def listed(kind: str) -> list[Listed]:
    """Return all named extensions of a kind, sorted, importing each for its docstring.

    Raises:
        ConfigError: there is no such kind.
    """
    point, found = point_of(kind), []
    for one in point.extensions():
        # An extension that is broken or lacks a library must not hide the others.
        try:
            text = description_of(point.resolve(one.name))
        except ConfigError as error:
            reason = str(error).removeprefix(f"{point.setting}={one.name}: ")
            text = extras.advice_on_import(error) or f"cannot be loaded: {reason}"
        found.append(Listed(name=one.name, origin=one.origin, description=text, target=one.target))
    return found


def description_of(found: Any) -> str:
    """Return the first line of an object's own docstring, or of its module's docstring."""
    own = found.__doc__ if isinstance(getattr(found, "__doc__", None), str) else ""
    module = sys.modules.get(getattr(found, "__module__", ""))
    text = own or getattr(module, "__doc__", None) or ""
    return inspect.cleandoc(text).partition("\n")[0]


def check_texts(target: type) -> None:
    """Check that a class has the descriptions for `agentrl list`: its purpose and its paper."""
    for name in ("about", "source"):
        text = getattr(target, name, None)
        assert isinstance(text, str), f"{target.__name__}.{name} must be a string"
        assert text, f"{target.__name__}.{name} is empty"


def reference(found: Any) -> str:
    """Return the name that selects a class or function in this process: `module:name`.

    Raises:
        ConfigError: the object is neither a class nor a function.
    """
    if isinstance(found, str):
        return found
    if not inspect.isclass(found) and not inspect.isroutine(found):
        raise ConfigError(f"{found!r} is neither a class nor a function")
    return f"{found.__module__}:{found.__qualname__}"
