"""Checks and comparison of captured pictures, and the errors of those that fail."""

import cv2
import numpy as np

from agentrl.errors import CaptureError
from agentrl.types import Image

_LARGEST_SIDE = 16_384
_BAR = 0.08
"""Fraction of the height taken by the system bar at the top and at the bottom."""
_COARSE = 61
"""Stride of the rows and columns that are checked first."""
_BLOCK = 16
_TOLERANCE = 24
_MOST_BLOCKS = 0.01
"""Largest fraction of blocks that may differ by more than the tolerance in equal pictures."""


def check_sides(serial: str, width: int, height: int, header: bytes) -> None:
    """Check that a header contains a plausible screen size."""
    if not (0 < width <= _LARGEST_SIDE and 0 < height <= _LARGEST_SIDE):
        raise CaptureError(f"{serial}: the capture is not a frame; it starts with {header!r}")


def check_lit(serial: str, rgb: Image, dark: int = 0) -> Image:
    """Return the picture if it has at least one lit pixel between the system bars.

    Args:
        serial: the phone's serial, for messages.
        rgb: the picture, uint8[H, W, 3].
        dark: highest channel value that still counts as black.

    Raises:
        CaptureError: the picture is black.
    """
    height, width = rgb.shape[:2]
    middle = rgb[round(height * _BAR) : round(height * (1 - _BAR))]
    # Check a few pixels first, and all of them only if those are black.
    if middle[::_COARSE, ::_COARSE].max(initial=0) > dark or middle.max(initial=0) > dark:
        return rgb
    if rgb.max() <= dark:
        raise CaptureError(
            f"{serial}: the {width}x{height} frame is all black because the phone is asleep, "
            "locked, or shows a window that forbids captures. Wake and unlock it "
            "(devices.wake=true does so), keep it awake "
            f"(adb -s {serial} shell svc power stayon true), and try again."
        )
    raise CaptureError(
        f"{serial}: the {width}x{height} frame is black except for its edges because the window in "
        "front forbids captures (FLAG_SECURE) or has not drawn anything yet."
    )


def cut_off(serial: str, width: int, height: int, got: int, expected: int) -> CaptureError:
    """Return the error for a frame that ended before its last byte."""
    return CaptureError(
        f"{serial}: the {width}x{height} frame ended after {got} of {expected} bytes"
    )


def no_frame(serial: str, got: bytes) -> CaptureError:
    """Return the error for a phone that sent a message, or nothing, instead of a frame."""
    text = got.decode(errors="replace").strip()
    return CaptureError(f"{serial}: the capture returned {len(got)} bytes, not a frame: {text!r}")


def images_match(one: Image, other: Image) -> bool:
    """Return whether two pictures are equal up to compression artifacts."""
    return block_difference(one, other) <= _MOST_BLOCKS


def block_difference(one: Image, other: Image) -> float:
    """Return the fraction of blocks that differ beyond compression; 1 if sizes differ."""
    if one.shape != other.shape:
        return 1.0
    # Compare block averages, because H.264 changes single pixels near edges but hardly the mean.
    small = (max(1, one.shape[1] // _BLOCK), max(1, one.shape[0] // _BLOCK))
    blocks = [cv2.resize(picture, small, interpolation=cv2.INTER_AREA) for picture in (one, other)]
    return float(np.mean((cv2.absdiff(*blocks) > _TOLERANCE).any(axis=2)))
