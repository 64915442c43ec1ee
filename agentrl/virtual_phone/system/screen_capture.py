"""Screen captures with the `capture` fault applied."""

from agentrl.virtual_phone.system.screen_frame import HEADER_BYTES, SRGB, ScreenFrame, black, secure
from agentrl.virtual_phone.virtual_phone import VirtualPhone

__all__ = ["SRGB", "frame", "pixels", "png", "raw"]


def raw(phone: VirtualPhone) -> bytes | memoryview | None:
    """Output of `screencap`: a 16-byte header and RGBA pixels; None if the capture fails."""
    picture = _secured(phone)
    fault = phone.faults.get("capture")
    if fault == "empty":
        return None
    if fault == "header":
        return b"\xff" * HEADER_BYTES
    if fault == "truncated":
        return picture.raw[: len(picture.raw) // 2]
    if fault == "black":
        return bytes(picture.raw[:HEADER_BYTES]) + bytes(len(picture.raw) - HEADER_BYTES)
    return picture.raw


def pixels(phone: VirtualPhone) -> bytes | memoryview | None:
    """The pixels without the header, as in the framebuffer."""
    written = raw(phone)
    return None if written is None else written[HEADER_BYTES:]


def png(phone: VirtualPhone) -> bytes | None:
    """Output of `screencap -p`; None if the capture fails."""
    fault = phone.faults.get("capture")
    if fault == "empty":
        return None
    if fault == "header":
        return b"\xff" * HEADER_BYTES
    written = frame(phone).png
    return written[: len(written) // 2] if fault == "truncated" else written


def frame(phone: VirtualPhone) -> ScreenFrame:
    """The frame that a video shows."""
    picture = _secured(phone)
    return black(*picture.size) if phone.faults.get("capture") == "black" else picture


def _secured(phone: VirtualPhone) -> ScreenFrame:
    """The current frame, blacked out below the status bar if the window forbids captures."""
    picture = phone.captured.frame
    return secure(picture) if phone.faults.get("capture") == "secure" else picture
