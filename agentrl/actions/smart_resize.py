"""How servers of Qwen's vision models resize images: to multiples of a token's side."""

import math

from agentrl.actions.dialect import Size


def smart_resize(size: Size, side: int, min_pixels: int, max_pixels: int) -> Size:
    """The size to which Qwen's image processors resize an image.

    Equals `qwen_vl_utils.smart_resize`. The two sides are rounded by themselves, so the ratio of
    width to height changes slightly.

    Args:
        size: width and height of the image.
        side: side of a token in pixels: 28 for Qwen2-VL and Qwen2.5-VL, 32 for Qwen3-VL.
        min_pixels: smallest area.
        max_pixels: largest area.
    """
    width, height = size
    columns, rows = (max(side, round(edge / side) * side) for edge in size)
    if columns * rows > max_pixels:
        shrink = math.sqrt(width * height / max_pixels)
        columns, rows = (max(side, math.floor(edge / shrink / side) * side) for edge in size)
    elif columns * rows < min_pixels:
        grow = math.sqrt(min_pixels / (width * height))
        columns, rows = (math.ceil(edge * grow / side) * side for edge in size)
    return columns, rows
