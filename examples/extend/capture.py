"""A capture method of your own: PNG files, read by Pillow.

    agentrl check capture capture.py:PillowCapture
    agentrl train number_game devices.capture=capture.py:PillowCapture

The pixels may come from anywhere, such as a camera or a vendor's tool, as long as `frame` never
returns a picture that is older than the call, incomplete or black.
"""

import io

import numpy as np
from PIL import Image as Pillow

from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.capture import Capture, check_lit
from agentrl.errors import CaptureError
from agentrl.types import Image


class PillowCapture(Capture):
    """`screencap -p`, decoded by Pillow."""

    measured_at_open = False  # slow: only used when chosen explicitly

    def __init__(self, transport: DeviceTransport) -> None:
        self._transport = transport

    def frame(self, deadline: Deadline) -> Image:
        """Capture the screen, uint8[H, W, 3]."""
        serial = self._transport.serial
        data = bytearray()
        # `opened` turns every connection failure into a DeviceError.
        with self._transport.opened("exec:screencap -p 2>/dev/null", deadline) as link:
            while chunk := link.receive():
                data += chunk
        try:
            picture = np.asarray(Pillow.open(io.BytesIO(data)).convert("RGB")).copy()
        except (OSError, SyntaxError) as error:  # Pillow's errors for damaged files
            raise CaptureError(f"{serial}: {len(data)} bytes are no PNG: {error}") from error
        return check_lit(serial, picture)
