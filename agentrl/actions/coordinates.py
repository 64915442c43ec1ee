"""Text formats of positions: in [0, 1], in thousandths, or in pixels of an image."""

import re
from dataclasses import dataclass

from agentrl.errors import ActionError, ConfigError
from agentrl.text import did_you_mean, quoted

_NUMBER = re.compile(r"\d{1,6}(\.\d{0,12})?|\.\d{1,12}", re.ASCII)
_SIGNED = re.compile(rf"-?({_NUMBER.pattern})", re.ASCII)
_OUTSIDE = ("refuse", "clamp")


@dataclass(slots=True, kw_only=True, frozen=True)
class CoordinateFormat:
    """Converts positions in [0, 1] to numbers on another scale, and back."""

    name: str
    sides: tuple[float, float]
    """The numbers of the right and the lower edge."""
    decimals: int
    clamp: bool
    """Whether positions outside are moved to the edge."""
    centered: bool = False
    """Whether an integer means the middle of a pixel."""

    @staticmethod
    def named(name: str, size: tuple[int, int] | None, outside: str) -> "CoordinateFormat":
        """The format of that name.

        Raises:
            ConfigError: an unknown name, or `pixels` without a size.
        """
        if outside not in _OUTSIDE:
            raise ConfigError(f"outside={outside!r} must be one of {', '.join(_OUTSIDE)}")
        clamp = outside == "clamp"
        if name == "unit":
            return CoordinateFormat(name=name, sides=(1, 1), decimals=2, clamp=clamp)
        if name == "thousand":
            return CoordinateFormat(name=name, sides=(1000, 1000), decimals=0, clamp=clamp)
        if name != "pixels":
            known = ("unit", "thousand", "pixels")
            raise ConfigError(
                f"positions={name!r} must be one of {', '.join(known)}{did_you_mean(name, known)}"
            )
        if size is None or len(size) != 2 or min(size) < 1:
            raise ConfigError(f"positions=pixels needs the image size, not {size!r}")
        return CoordinateFormat(name=name, sides=size, decimals=0, clamp=clamp, centered=True)

    @staticmethod
    def number(text: str, *, signed: bool = False) -> float:
        """A plain decimal number, without exponent.

        Raises:
            ActionError: not a number.
        """
        if not (_SIGNED if signed else _NUMBER).fullmatch(text):
            raise ActionError(f"{quoted(text)} is not a number such as 0.25")
        return float(text)

    def parse(self, name: str, given: list[str], form: str, points: int) -> list[float]:
        """Parse the arguments of an action: positions in [0, 1], x and y of each point in turn.

        Raises:
            ActionError: a wrong number of arguments, or a position outside the screen.
        """
        numbers = [self.number(text, signed=self.clamp) for text in given]
        if len(numbers) != 2 * points:
            raise ActionError(f"{name} takes {2 * points} numbers, not {len(given)}: {form}")
        return [self._position(name, n, side) for n, side in self._with_sides(numbers)]

    def format(self, *positions: float) -> list[str]:
        """The text of positions in [0, 1]."""
        texts = []
        for position, side in self._with_sides(positions):
            number = position * side
            if self.centered:
                number = min(int(number), side - 1)
            texts.append(f"{number:.{self.decimals}f}")
        return texts

    def _position(self, name: str, number: float, side: float) -> float:
        last = side - 1 if self.centered else side
        if self.clamp:
            number = min(max(number, 0.0), last)
        if not 0 <= number <= last:
            raise ActionError(
                f"{name}: {number:g} is outside the screen; positions are in [0, {last:g}]"
            )
        return (number + 0.5) / side if self.centered else number / side

    def _with_sides(self, numbers: "list[float] | tuple[float, ...]") -> list[tuple[float, float]]:
        return [(number, self.sides[index % 2]) for index, number in enumerate(numbers)]
