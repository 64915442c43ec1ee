"""The colors of a game's pictures: as drawn, or inverted as by a phone's color inversion."""

from agentrl.errors import InvalidArgument
from agentrl.types import Image

COLORS = (NORMAL, INVERTED) = ("normal", "inverted")


def check_colors(colors: str) -> None:
    """Check the argument `colors` of an environment.

    Raises:
        InvalidArgument: it is neither `normal` nor `inverted`.
    """
    if colors not in COLORS:
        raise InvalidArgument("colors", colors, f"one of {', '.join(COLORS)}")


def in_colors(picture: Image, colors: str) -> Image:
    """Return a picture in the given colors; the picture itself if they are normal."""
    return ~picture if colors == INVERTED else picture
