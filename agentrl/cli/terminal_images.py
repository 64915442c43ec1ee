"""Images in a terminal, two pixels per character."""

from PIL import Image as PillowImage
from rich.style import Style
from rich.text import Text

from agentrl.types import Image

_UPPER_HALF = "\u2580"


def picture(image: Image, width: int) -> Text:
    """An image as text; each character shows two pixels, one above the other.

    Args:
        image: uint8[H, W, 3].
        width: characters per row, at least 1.
    """
    height = max(2, round(image.shape[0] * width / image.shape[1]))
    height += height % 2
    small = PillowImage.fromarray(image).resize((width, height), PillowImage.Resampling.BOX)
    shown = Text()
    for row in range(0, height, 2):
        for column in range(width):
            above, below = (small.getpixel((column, row + k)) for k in (0, 1))
            shown.append(_UPPER_HALF, Style(color=_hex(above), bgcolor=_hex(below)))
        shown.append("\n")
    return shown


def _hex(pixel: object) -> str:
    assert isinstance(pixel, tuple)
    return "#" + "".join(f"{value:02x}" for value in pixel)
