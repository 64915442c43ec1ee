"""Screen captures with the `capture` fault applied."""

from virtual_phone.system.screen_frame import HEADER_BYTES, ScreenFrame, black, secure
from virtual_phone.virtual_phone import VirtualPhone


def raw(phone: VirtualPhone, known: str = "") -> bytes | memoryview | None:
    """Return the output of `screencap` (16-byte header, RGBA pixels); None if the capture fails."""
    image = _secured(phone)
    fault = phone.faults.get("capture")
    if fault == "empty":
        return None
    if fault == "header":
        return b"\xff" * HEADER_BYTES
    if fault == "truncated":
        return image.raw[: len(image.raw) // 2]
    if fault == "black":
        return bytes(image.raw[:HEADER_BYTES]) + bytes(len(image.raw) - HEADER_BYTES)
    if not known:
        return image.raw
    base, phone.sent_frame = phone.sent_frame, image
    return image.changes(base if base is not None and base.token.hex() == known else None)


def png(phone: VirtualPhone) -> bytes | None:
    """Return the output of `screencap -p`; None if the capture fails."""
    fault = phone.faults.get("capture")
    if fault == "empty":
        return None
    if fault == "header":
        return b"\xff" * HEADER_BYTES
    written = frame(phone).png
    return written[: len(written) // 2] if fault == "truncated" else written


def frame(phone: VirtualPhone) -> ScreenFrame:
    """Return the frame to show in a video."""
    image = _secured(phone)
    return black(*image.size) if phone.faults.get("capture") == "black" else image


def _secured(phone: VirtualPhone) -> ScreenFrame:
    """Return the frame, blacked out below the status bar if the window forbids captures."""
    image = phone.captured.frame
    return secure(image) if phone.faults.get("capture") == "secure" else image
