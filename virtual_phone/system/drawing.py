"""Basic drawing: a blank image, boxes, text."""

import cv2
import numpy as np

from virtual_phone.types import Image

FONT = cv2.FONT_HERSHEY_SIMPLEX


def blank(width: int, height: int, color: tuple[int, int, int]) -> Image:
    """Create an image of a single color, uint8[height, width, 3]."""
    row = np.full((width, 3), color, np.uint8)
    # Broadcasting a row is many times faster than broadcasting a pixel.
    return np.broadcast_to(row, (height, width, 3)).copy()


def fill(image: Image, box: tuple[float, float, float, float], color: tuple[int, int, int]) -> None:
    """Fill a box (left, top, right and bottom in [0, 1]) of an image."""
    height, width = image.shape[:2]
    left, top, right, bottom = box
    start = (round(left * width), round(top * height))
    end = (round(right * width), round(bottom * height))
    cv2.rectangle(image, start, end, color, cv2.FILLED)


def write(
    image: Image,
    text: str,
    at: tuple[float, float],
    scale: float,
    color: tuple[int, int, int],
) -> None:
    """Write text into an image.

    Args:
        image: image to draw on, uint8[height, width, 3].
        text: text to write; characters that cannot be drawn become question marks.
        at: start of the baseline, in [0, 1].
        scale: font scale.
        color: RGB.
    """
    height, width = image.shape[:2]
    origin = (round(at[0] * width), round(at[1] * height))
    plain = text.encode("ascii", "replace").decode()
    cv2.putText(image, plain, origin, FONT, scale, color, 1, cv2.LINE_AA)
