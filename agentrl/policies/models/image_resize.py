"""Scale pictures to a size that a model reads."""

import math

import cv2
import numpy as np

from agentrl.types import Image


def target_size(
    size: tuple[int, int], image_size: tuple[int, int] | None, max_pixels: int, side: int
) -> tuple[int, int]:
    """The width and height that a picture is scaled to.

    Args:
        size: the picture's own width and height.
        image_size: the width and height asked for; None keeps the picture's shape.
        max_pixels: bounds the area where no size is asked for.
        side: pixels of a token's side; both results are multiples of it, at least one token.

    Returns:
        width and height.
    """
    width, height = image_size or size
    shrink = 1.0 if image_size else min(1.0, math.sqrt(max_pixels / (width * height)))
    columns, rows = (max(1, round(edge * shrink / side)) for edge in (width, height))
    while not image_size and columns * rows * side * side > max_pixels and columns * rows > 1:
        if columns >= rows:
            columns -= 1
        else:
            rows -= 1
    return columns * side, rows * side


def scale(image: Image, size: tuple[int, int]) -> Image:
    """A picture at another width and height, always a new one: environments reuse their buffers.

    Pixels are averaged over the area that they come from. Halving is what OpenCV does fast: a
    screen of 720x1280 takes a third of the time where most of the way is gone in halves.
    """
    width, height = size
    while image.shape[1] >= 4 * width and image.shape[0] >= 4 * height:
        half = (image.shape[1] // 2, image.shape[0] // 2)
        image = np.asarray(cv2.resize(image, half, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    if (image.shape[1], image.shape[0]) == size:
        return image.copy()
    smaller = width * height < image.shape[0] * image.shape[1]
    how = cv2.INTER_AREA if smaller else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, size, interpolation=how), dtype=np.uint8)
