"""What captures of the screen give, with what is wrong with them."""

from agentrl.virtual_phone.phone import Phone
from agentrl.virtual_phone.system.screen import HEADER_BYTES, SRGB, Frame, black, secure

__all__ = ["SRGB", "frame", "pixels", "png", "raw"]


def raw(phone: Phone) -> bytes | memoryview | None:
    """What `screencap` writes: 16 bytes and the RGBA pixels; None where it fails."""
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


def pixels(phone: Phone) -> bytes | memoryview | None:
    """The pixels alone, as the framebuffer has them."""
    written = raw(phone)
    return None if written is None else written[HEADER_BYTES:]


def png(phone: Phone) -> bytes | None:
    """What `screencap -p` writes; None where it fails."""
    fault = phone.faults.get("capture")
    if fault == "empty":
        return None
    if fault == "header":
        return b"\xff" * HEADER_BYTES
    written = frame(phone).png
    return written[: len(written) // 2] if fault == "truncated" else written


def frame(phone: Phone) -> Frame:
    """The picture that a video shows."""
    picture = _secured(phone)
    return black(*picture.size) if phone.faults.get("capture") == "black" else picture


def _secured(phone: Phone) -> Frame:
    """The picture; of a window that forbids captures, the system shows its own parts alone."""
    picture = phone.captured.frame
    return secure(picture) if phone.faults.get("capture") == "secure" else picture
