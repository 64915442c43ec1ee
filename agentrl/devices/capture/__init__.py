"""Methods of capturing a phone's screen, each a small class.

None of them ever returns a picture that is all black, truncated or of the wrong size: that is a
CaptureError.
"""

from collections.abc import Callable, Mapping

from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.capture.capture_method import Capture
from agentrl.devices.capture.framebuffer import FramebufferCapture
from agentrl.devices.capture.h264_stream import StreamCapture, check_decoder
from agentrl.devices.capture.screencap import PngCapture, RawCapture

CAPTURES: Mapping[str, Callable[[DeviceTransport], Capture]] = {
    "raw": RawCapture,
    "png": PngCapture,
    "framebuffer": FramebufferCapture,
    "stream": StreamCapture,
}

__all__ = ["CAPTURES", "Capture", "check_installed"]


def check_installed(name: str) -> None:
    """Check that the library a capture needs is installed.

    Raises:
        ConfigError: it is not.
    """
    if name == "stream":
        check_decoder()
