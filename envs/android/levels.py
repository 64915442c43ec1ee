"""How hard a number game is: settings that combine freely, each of them plain by default."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from agentrl.errors import ConfigError

_SWITCH = {"true": True, "1": True, "false": False, "0": False}
_BOTH: tuple[range | tuple[bool, bool], str] = (False, True), "true or false"
_ALLOWED = {
    "memory": _BOTH,
    "digits": (range(1, 3), "1 (numbers from 1 to 9) or 2 (from 10 to 99)"),
    "cards": (range(3, 5), "3 or 4"),
    "moved": _BOTH,
    "distractor": _BOTH,
    "timed": (range(10**9), "how many touches a round lasts, such as 3, or 0 for no clock"),
}


@dataclass(slots=True, kw_only=True, frozen=True)
class Level:
    """What a number game asks of its player. No setting changes what another one does.

    Raises:
        ValueError: a value that its setting cannot have.
    """

    memory: bool = False
    """The lamp is shown before the cards, and is out when they are turned."""
    digits: int = 1
    """1: numbers from 1 to 9; 2: from 10 to 99."""
    cards: int = 3
    """3 or 4; of four, yellow asks for the second largest."""
    moved: bool = False
    """Cards, button and words lie elsewhere in every round."""
    distractor: bool = False
    """A line about numbers or lamps stands on the screen, and is of no use."""
    timed: int = 0
    """Touches until a round is lost; 0: as many as the player likes."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, (values, told) = getattr(self, field.name), _ALLOWED[field.name]
            if type(value) is not type(field.default) or value not in values:
                raise ValueError(f"{field.name} is {value!r}; it must be {told}.")

    @property
    def numbers(self) -> range:
        """What may stand on a card."""
        return range(1, 10) if self.digits == 1 else range(10, 100)

    def extras(self) -> dict[str, str]:
        """What an app is launched with to play it, as `read_extras` takes it.

        A phone seeds its clock with all that an app is told, so what is plain is not told (but for
        `memory`, which always was): the pictures of the plain game stay what they are.
        """
        return {
            field.name: str(getattr(self, field.name)).lower()
            for field in fields(self)
            if field.name == "memory" or getattr(self, field.name) != field.default
        }


def read_extras(extras: Mapping[str, str]) -> dict[str, Any]:
    """The settings among what an app is launched with; what has no meaning stays text."""
    return {name: _read(name, extras[name]) for name in _ALLOWED if name in extras}


def checked_level(**settings: Any) -> Level:
    """The level with these settings, as a user has written them.

    Raises:
        ConfigError: a value that its setting cannot have.
    """
    try:
        return Level(**settings)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _read(name: str, text: str) -> bool | int | str:
    if _ALLOWED[name] is _BOTH:
        return _SWITCH.get(text.lower(), text)
    return int(text) if text.isdecimal() else text
