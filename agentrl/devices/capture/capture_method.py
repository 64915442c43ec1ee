"""The base class of captures, and shared functions that check and compare pictures."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import cv2
import numpy as np
import xxhash

from agentrl.devices.adb.adb_socket import Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.adb.shell_script import Snippet
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


class Capture(ABC):
    """One method of capturing a phone's screen; not thread-safe.

    Args:
        transport: opens services of the phone; nothing is opened before the first frame.
    """

    measured_at_open: ClassVar[bool] = True
    """Whether `devices.capture=auto` considers this method when a phone is opened."""

    @abstractmethod
    def __init__(self, transport: DeviceTransport) -> None: ...

    @abstractmethod
    def frame(self, deadline: Deadline) -> Image:
        """Capture the screen as uint8[H, W, 3]; the array does not change afterwards.

        The picture is never older than the call. If the screen has not changed, the same array may
        be returned again.

        Raises:
            CaptureError: the picture is incomplete or black.
            DeviceError: the phone failed otherwise.
        """

    @property
    def command(self) -> Snippet | None:
        """Return a shell command whose output is a picture for `parse`; None means use `frame`.

        Only for small outputs: in a persistent shell, the command needs no separate connection.
        """
        return None

    def parse(self, output: bytes) -> Image | None:
        """Parse the output of `command` into a picture; None if only `frame` can interpret it.

        Only classes that return a `command` implement this; it is never called on others.

        Raises:
            CaptureError: the picture is incomplete or black.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release resources kept between frames; the next capture starts over."""

    @classmethod
    def check_installed(cls) -> None:
        """Check that the library this capture needs is installed.

        Raises:
            ConfigError: the library is missing; the message says how to install it.
        """


class StreamingCapture(Capture):
    """A capture whose pictures lag behind the screen."""

    measured_at_open = False  # measuring the lag requires changing the screen
    lag_s: float
    """Upper bound on the seconds until a picture shows a change of the screen."""

    @abstractmethod
    def newest(self, deadline: Deadline) -> Image:
        """Return the newest picture, unchecked but not older than this call.

        Raises:
            CaptureError: the stream ended without a picture.
            TimeoutError: no picture came in time.
        """


class LastPicture:
    """Keeps the last picture of a capture so that the same bytes are not converted twice."""

    def __init__(self) -> None:
        self.digest = ""
        """Hash of the picture's bytes as received, 32 hexadecimal digits; "" before the first."""
        self.picture: Image | None = None
        """uint8[H, W, 3], read-only."""

    def update(self, data: bytes | memoryview, convert: Callable[[], Image]) -> Image:
        """Convert bytes to a picture; return the last array if the bytes have not changed.

        Args:
            data: a whole picture as received from the phone.
            convert: converts `data` to a picture; may raise CaptureError.
        """
        # Returning the same array also lets callers skip comparing pictures.
        digest = xxhash.xxh3_128_hexdigest(data)
        if self.picture is None or digest != self.digest:
            picture = convert()
            picture.flags.writeable = False
            self.digest, self.picture = digest, picture
        return self.picture


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
