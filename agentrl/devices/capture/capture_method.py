"""What every capture is, and what every picture is checked for."""

from typing import Protocol

from agentrl.devices.adb.adb_socket import Deadline
from agentrl.errors import CaptureError
from agentrl.types import Image

_LARGEST_SIDE = 16_384
_BAR = 0.08
"""Share of the height, above and below, where the system shows its own over a black window."""
_COARSE = 61
"""Every so many rows and columns are looked at first."""


class Capture(Protocol):
    """One way to get a picture of a phone's screen; not safe for threads."""

    def frame(self, deadline: Deadline) -> Image:
        """What the screen shows, uint8[H, W, 3]; the caller owns it.

        It is never older than the call.

        Raises:
            CaptureError: what came is no whole picture, or a black one.
            DeviceError: the phone failed otherwise.
        """

    def close(self) -> None:
        """End what is kept; the next call starts it again."""


def check_sides(serial: str, width: int, height: int, header: bytes) -> None:
    """See whether a header tells the size of a screen.

    Raises:
        CaptureError: it does not.
    """
    if not (0 < width <= _LARGEST_SIDE and 0 < height <= _LARGEST_SIDE):
        raise CaptureError(f"{serial}: the capture is no frame, it starts with {header!r}")


def check_lit(serial: str, rgb: Image, dark: int = 0) -> Image:
    """The picture itself, if it has at least one lit pixel between the bars of the system.

    Args:
        serial: for messages.
        rgb: uint8[H, W, 3].
        dark: the brightest that still counts as black.

    Raises:
        CaptureError: it is black.
    """
    height, width = rgb.shape[:2]
    middle = rgb[round(height * _BAR) : round(height * (1 - _BAR))]
    # A few pixels first: all of them are only looked at where those are black.
    if middle[::_COARSE, ::_COARSE].max(initial=0) > dark or middle.max(initial=0) > dark:
        return rgb
    if rgb.max() <= dark:
        raise CaptureError(
            f"{serial}: the frame of {width}x{height} is black all over: the phone is asleep, "
            "locked, or shows a window that forbids captures. Wake and unlock it, switch the "
            f"lock screen off (adb -s {serial} shell svc power stayon true), and try again."
        )
    raise CaptureError(
        f"{serial}: the frame of {width}x{height} is black but for its edges: the window in front "
        "forbids captures (FLAG_SECURE), or has drawn nothing yet."
    )


def cut_off(serial: str, width: int, height: int, got: int, wanted: int) -> CaptureError:
    """What to raise where a frame ended before its last byte."""
    return CaptureError(
        f"{serial}: the frame of {width}x{height} ended after {got} of {wanted} bytes"
    )


def no_frame(serial: str, got: bytes) -> CaptureError:
    """What to raise where a phone sent a few words, or nothing."""
    text = got.decode(errors="replace").strip()
    return CaptureError(f"{serial}: the capture gave {len(got)} bytes and no frame: {text!r}")
