"""Resize images to the resolution of a model's input."""

import math

import cv2
import numpy as np

from agentrl.types import Image


def target_size(
    size: tuple[int, int], image_size: tuple[int, int] | None, max_pixels: int, side: int
) -> tuple[int, int]:
    """The width and height that an image is resized to.

    Args:
        size: the image's own width and height.
        image_size: requested width and height; None keeps the aspect ratio.
        max_pixels: limits the area where no size is requested.
        side: side of a token in pixels; both results are multiples of it, at least one token.

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


def resize_image(image: Image, size: tuple[int, int]) -> Image:
    """Resize an image by area averaging; always a new array, as environments reuse their buffers.

    OpenCV is fast at halving, so a large image is halved first: that takes a third of the time for
    a screen of 720x1280.
    """
    width, height = size
    while image.shape[1] >= 4 * width and image.shape[0] >= 4 * height:
        half = (image.shape[1] // 2, image.shape[0] // 2)
        image = np.asarray(cv2.resize(image, half, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    if (image.shape[1], image.shape[0]) == size:
        return image.copy()
    smaller = width * height < image.shape[0] * image.shape[1]
    interpolation = cv2.INTER_AREA if smaller else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, size, interpolation=interpolation), dtype=np.uint8)
