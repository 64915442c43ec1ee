"""Methods of capturing a phone's screen, each a small class.

None of them ever returns a picture that is all black, truncated or of the wrong size; they raise
CaptureError instead.
"""

from agentrl.devices.capture.capture_method import Capture, StreamingCapture
from agentrl.devices.capture.picture_checks import check_lit

__all__ = ["Capture", "StreamingCapture", "check_lit"]
