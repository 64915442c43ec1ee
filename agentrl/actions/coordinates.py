"""How positions are spelled: in [0, 1], in thousandths, or in pixels of a picture."""

import re
from dataclasses import dataclass

from agentrl.errors import ActionError, ConfigError
from agentrl.text import did_you_mean, quoted

_NUMBER = re.compile(r"\d{1,6}(\.\d{0,12})?|\.\d{1,12}", re.ASCII)
_SIGNED = re.compile(rf"-?({_NUMBER.pattern})", re.ASCII)
_OUTSIDE = ("refuse", "clamp")


@dataclass(slots=True, kw_only=True, frozen=True)
class Spelling:
    """Positions in [0, 1] as numbers of some other scale, and back."""

    name: str
    sides: tuple[float, float]
    """The number that stands for the right and the lower edge."""
    decimals: int
    clamp: bool
    """Whether what is outside is moved to the edge."""
    centred: bool = False
    """Whether a whole number means the middle of a pixel."""

    @staticmethod
    def named(name: str, size: tuple[int, int] | None, outside: str) -> "Spelling":
        """The spelling of that name.

        Raises:
            ConfigError: there is none, or it is `pixels` and there is no size.
        """
        if outside not in _OUTSIDE:
            raise ConfigError(f"outside={outside!r} must be one of {', '.join(_OUTSIDE)}")
        clamp = outside == "clamp"
        if name == "unit":
            return Spelling(name=name, sides=(1, 1), decimals=2, clamp=clamp)
        if name == "thousand":
            return Spelling(name=name, sides=(1000, 1000), decimals=0, clamp=clamp)
        if name != "pixels":
            known = ("unit", "thousand", "pixels")
            raise ConfigError(
                f"positions={name!r} must be one of {', '.join(known)}{did_you_mean(name, known)}"
            )
        if size is None or len(size) != 2 or min(size) < 1:
            raise ConfigError(f"positions=pixels needs the picture's size, not {size!r}")
        return Spelling(name=name, sides=size, decimals=0, clamp=clamp, centred=True)

    @staticmethod
    def number(text: str, *, signed: bool = False) -> float:
        """A plain number; no exponents, no words.

        Raises:
            ActionError: it is none.
        """
        if not (_SIGNED if signed else _NUMBER).fullmatch(text):
            raise ActionError(f"{quoted(text)} is no number such as 0.25")
        return float(text)

    def read(self, name: str, given: list[str], form: str, points: int) -> list[float]:
        """Positions in [0, 1], x and y of each point in turn.

        Raises:
            ActionError: not so many numbers, or one outside the screen.
        """
        numbers = [self.number(text, signed=self.clamp) for text in given]
        if len(numbers) != 2 * points:
            raise ActionError(f"{name} takes {2 * points} numbers, not {len(given)}: {form}")
        return [self._position(name, n, side) for n, side in self._with_sides(numbers)]

    def say(self, *positions: float) -> list[str]:
        """Positions in [0, 1] as this spelling has them."""
        said = []
        for position, side in self._with_sides(positions):
            number = position * side
            if self.centred:
                number = min(int(number), side - 1)
            said.append(f"{number:.{self.decimals}f}")
        return said

    def _position(self, name: str, number: float, side: float) -> float:
        last = side - 1 if self.centred else side
        if self.clamp:
            number = min(max(number, 0.0), last)
        if not 0 <= number <= last:
            raise ActionError(
                f"{name}: {number:g} is outside the screen; positions are in [0, {last:g}]"
            )
        return (number + 0.5) / side if self.centred else number / side

    def _with_sides(self, numbers: "list[float] | tuple[float, ...]") -> list[tuple[float, float]]:
        return [(number, self.sides[index % 2]) for index, number in enumerate(numbers)]
