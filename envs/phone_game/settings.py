"""The settings of a game's levels: plain values, checked once, and told to the app as text."""

import inspect
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from agentrl.errors import ConfigError

_SWITCH = {"true": True, "1": True, "false": False, "0": False}
_CHOICES, _TOLD = "choices", "told"


def one_of(default: Any, choices: Container[Any], told: str) -> Any:
    """A field of `Settings` that takes some values only.

    Args:
        default: the plain level's.
        choices: holds every value that it takes, of the default's type.
        told: what they are, in words that follow "it must be".
    """
    return field(default=default, metadata={_CHOICES: choices, _TOLD: told})


def switch(default: bool = False) -> Any:
    """A field of `Settings` that is on or off."""
    return one_of(default, (False, True), "true or false")


@dataclass(slots=True, kw_only=True, frozen=True)
class Settings:
    """How hard a game is, or how it is paced: fields made by `one_of` and `switch`.

    Raises:
        ValueError: a value that its setting cannot have.
    """

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if type(value) is not type(one.default) or value not in one.metadata[_CHOICES]:
                raise ValueError(f"{one.name} is {value!r}; it must be {one.metadata[_TOLD]}.")

    def extras(self) -> dict[str, str]:
        """What an app is launched with to play it, as `read` takes it; what is plain is not told.

        A phone seeds its clock with all that an app is told: a setting that a game gets one day
        leaves the pictures of its other levels what they are.
        """
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        plain = {one.name: one.default for one in fields(self)}
        return {name: as_extra(value) for name, value in told.items() if value != plain[name]}

    @classmethod
    def read(cls, extras: Mapping[str, str]) -> dict[str, Any]:
        """The settings among what an app is launched with; what has no meaning stays text."""
        return {
            one.name: _read(one.default, extras[one.name])
            for one in fields(cls)
            if one.name in extras
        }

    @classmethod
    def checked(cls, **settings: Any) -> Self:
        """The level with these settings, as a user has written them.

        Raises:
            ConfigError: a value that its setting cannot have.
        """
        try:
            return cls(**settings)
        except ValueError as error:
            raise ConfigError(str(error)) from error


@dataclass(slots=True, kw_only=True, frozen=True)
class Paced(Settings):
    """Settings of a game in which time passes while nobody touches it."""

    clock: str = one_of(
        "paused", ("paused", "running"), "paused (time passes with actions) or running"
    )
    """`paused`: each touch and swipe takes `ticks` ticks, and none passes while the policy thinks.
    `running`: the phone's own time passes, whether anybody acts or not."""
    ticks: int = one_of(4, range(1, 1001), "how many ticks an action takes, from 1 to 1000")

    @property
    def runs(self) -> bool:
        """Whether time passes by itself."""
        return self.clock == "running"


def as_extra(value: Any) -> str:
    """A plain value as it is told to an app."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def signature(function: Callable[..., Any], level: type[Settings]) -> inspect.Signature:
    """What a function that takes `**settings` takes, with the settings of a level by their names.

    Which arguments of a configuration exist, and who takes them, is seen by signatures.
    """
    taken = list(inspect.signature(function).parameters.values())
    named = [one for one in taken[1:] if one.kind is not inspect.Parameter.VAR_KEYWORD]
    settings = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default)
        for one in fields(level)
    ]
    return inspect.Signature([*named, *settings])


def _read(default: Any, text: str) -> bool | int | str:
    if isinstance(default, bool):
        return _SWITCH.get(text.lower(), text)
    if isinstance(default, int):
        return int(text) if text.isdecimal() else text
    return text
