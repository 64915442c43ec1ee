"""The settings of a game's levels: plain values, validated once, passed to the app as text."""

import inspect
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from agentrl.envs.picture_colors import COLORS, NORMAL
from agentrl.errors import InvalidArgument

_SWITCH = {"true": True, "1": True, "false": False, "0": False}
_CHOICES, _DESCRIPTION = "choices", "description"


def one_of(default: Any, choices: Container[Any], description: str) -> Any:
    """Return a field of `LevelSettings` with a fixed set of valid values of the default's type.

    Error messages show `description` after "must be".
    """
    return field(default=default, metadata={_CHOICES: choices, _DESCRIPTION: description})


def switch(default: bool = False) -> Any:
    """Return a field of `LevelSettings` that is on or off."""
    return one_of(default, (False, True), "true or false")


@dataclass(slots=True, kw_only=True, frozen=True)
class LevelSettings:
    """The difficulty, pace or look of a game: fields made by `one_of` and `switch`.

    Raises:
        ValueError: a setting has an invalid value.
    """

    colors: str = one_of(NORMAL, COLORS, "normal or inverted")
    """`inverted`: the game's area is drawn as by a phone's color inversion."""

    def __post_init__(self) -> None:
        values = {setting.name: getattr(self, setting.name) for setting in fields(self)}
        if (invalid := self._first_invalid(values)) is not None:
            raise ValueError(str(invalid))

    @classmethod
    def _first_invalid(cls, values: Mapping[str, Any]) -> InvalidArgument | None:
        for setting in fields(cls):
            value = values.get(setting.name, setting.default)
            choices = setting.metadata[_CHOICES]
            if type(value) is not type(setting.default) or value not in choices:
                return InvalidArgument(setting.name, value, setting.metadata[_DESCRIPTION])
        return None

    def extras(self) -> dict[str, str]:
        """Return this level's launch extras for `read`, without default values.

        A phone seeds its clock with the extras of a launch, and the clock is on every screen.
        Leaving out defaults keeps existing screens unchanged when a game gains a new setting.
        """
        values = {setting.name: getattr(self, setting.name) for setting in fields(self)}
        defaults = {setting.name: setting.default for setting in fields(self)}
        return {name: as_extra(value) for name, value in values.items() if value != defaults[name]}

    @classmethod
    def read(cls, extras: Mapping[str, str]) -> dict[str, Any]:
        """Read the settings in an app's launch extras; values that do not parse stay strings."""
        return {
            setting.name: _read(setting.default, extras[setting.name])
            for setting in fields(cls)
            if setting.name in extras
        }

    @classmethod
    def checked(cls, **settings: Any) -> Self:
        """Return the level with settings from a user's configuration.

        Raises:
            InvalidArgument: a setting has an invalid value.
        """
        if (invalid := cls._first_invalid(settings)) is not None:
            raise invalid
        return cls(**settings)


@dataclass(slots=True, kw_only=True, frozen=True)
class PacedSettings(LevelSettings):
    """Settings of a game in which time can pass without touches."""

    clock: str = one_of(
        "paused", ("paused", "running"), "paused (time passes with actions) or running"
    )
    """`paused`: each touch or swipe takes `ticks` ticks, and none pass while the policy thinks.
    `running`: the phone's own clock runs, whether the policy acts or not."""
    ticks: int = one_of(4, range(1, 1001), "an integer from 1 to 1000 (ticks per action)")

    @property
    def runs(self) -> bool:
        """Whether time passes on its own."""
        return self.clock == "running"


def as_extra(value: Any) -> str:
    """Format a plain value as a launch extra."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def signature(function: Callable[..., Any], level: type[LevelSettings]) -> inspect.Signature:
    """Return a function's signature with `**settings` replaced by a level's settings.

    Configuration validation reads signatures to find out which arguments exist.
    """
    parameters = list(inspect.signature(function).parameters.values())
    named = [p for p in parameters[1:] if p.kind is not inspect.Parameter.VAR_KEYWORD]
    settings = [
        inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=setting.default)
        for setting in fields(level)
    ]
    return inspect.Signature([*named, *settings])


def _read(default: Any, text: str) -> bool | int | str:
    if isinstance(default, bool):
        return _SWITCH.get(text.lower(), text)
    if isinstance(default, int):
        return int(text) if text.isdecimal() else text
    return text
