"""Captures by `screenrecord`: the newest frame of an H.264 stream.

A stream is the fastest capture on most real phones, and the easiest to get wrong. Its frames
arrive some unknown time after what they show, and while the screen does not change no frames
arrive at all. So three rules hold:

- A frame is only returned once `lag_s` has passed since the request: by then everything that was
  on the screen has arrived. The lag is measured (`agentrl.devices.capture_benchmark`); the default
  suits a slow phone.
- The stream is compared with a raw capture periodically, and whenever most of the screen changed:
  a recording keeps its orientation when the phone is rotated. If it shows something else, it is
  restarted; if that does not help, it is an error.
- A damaged stream is never decoded further, and one that has ended is restarted.

Its pictures are compressed: they are close to those of other captures, not equal.
"""

import time

import numpy as np

from agentrl.devices.adb.adb_socket import Deadline, to_device_error
from agentrl.devices.adb.device_transport import FAILURES, DeviceTransport
from agentrl.devices.capture.capture_method import check_lit
from agentrl.devices.capture.image_similarity import block_difference, images_match
from agentrl.devices.capture.screencap_raw import RawCapture
from agentrl.devices.capture.screenrecord import ScreenRecording
from agentrl.errors import CaptureError, ConfigError
from agentrl.types import Image

_RECORD = "screenrecord --output-format=h264 --time-limit 180 -"
_CHECK_EVERY_S = 10.0
_CHECKS = 3
_MOST = 1 / 3
"""Fraction of the screen whose change triggers a comparison with a raw capture."""
_DARK = 8
"""Black is not exactly 0 in a compressed picture."""


class StreamCapture:
    """See Capture.

    Args:
        line: to the phone.
        lag_s: upper bound of the time until the stream shows what the screen shows.

    Raises:
        ConfigError: PyAV is not installed.
    """

    def __init__(self, line: DeviceTransport, lag_s: float = 0.25) -> None:
        check_decoder()
        self.lag_s = lag_s
        self._transport = line
        self._raw = RawCapture(line)
        self._run: ScreenRecording | None = None
        self._checked: Image = np.zeros((1, 1, 3), np.uint8)
        self._check_at_s = 0.0

    def frame(self, deadline: Deadline) -> Image:
        """See Capture.frame."""
        try:
            picture = self.newest(deadline)
            if (
                time.monotonic() >= self._check_at_s
                or block_difference(self._checked, picture) > _MOST
            ):
                picture = self._check(picture, deadline)
                self._checked, self._check_at_s = picture, time.monotonic() + _CHECK_EVERY_S
        except TimeoutError as error:
            raise to_device_error(
                error, f"{self._transport.serial}: screenrecord", deadline.seconds
            ) from error
        except CaptureError:
            self.close()
            raise
        return check_lit(self._transport.serial, picture, dark=_DARK).copy()

    def close(self) -> None:
        """Stop the recording."""
        run, self._run = self._run, None
        self._check_at_s = 0.0
        if run is not None:
            run.close()

    def newest(self, deadline: Deadline) -> Image:
        """The newest frame, not older than this call; not checked.

        Raises:
            CaptureError: the recording ended without one.
            TimeoutError: none came in time.
        """
        from agentrl.devices.capture.h264_decoder import rgb

        asked_s, why = time.monotonic(), ""
        for _ in range(2):
            run = self._run
            if run is None or run.ended:
                run = self._start(deadline)
            frame = run.newest(asked_s + self.lag_s, deadline)
            if frame is not None:
                return rgb(frame)
            why = run.why_ended()
        self._transport.check_online()
        raise CaptureError(f"{self._transport.serial}: screenrecord returned no frame: {why}")

    def _start(self, deadline: Deadline) -> ScreenRecording:
        self.close()
        try:
            link = self._transport.open(f"exec:{_RECORD} 2>/dev/null", deadline)
        except FAILURES as error:
            raise self._transport.failure(error, "screenrecord", deadline.seconds) from error
        self._run = ScreenRecording(link)
        return self._run

    def _check(self, picture: Image, deadline: Deadline) -> Image:
        """The newest frame, once the stream and a raw capture show the same screen."""
        for attempt in range(_CHECKS):
            real = self._raw.frame(deadline)
            following = self.newest(deadline)
            # The screen may have changed before the raw capture or after it.
            if images_match(real, picture) or images_match(real, following):
                return following
            picture = following
            if attempt == 0 and real.shape != following.shape:
                self.close()
                picture = self.newest(deadline)
        raise CaptureError(
            f"{self._transport.serial}: the {_sides(picture)} stream does not show the "
            f"{_sides(real)} screen; use devices.capture=auto"
        )


def check_decoder() -> None:
    """Check that PyAV is installed.

    Raises:
        ConfigError: it is not.
    """
    try:
        import agentrl.devices.capture.h264_decoder  # noqa: F401 - fails early if PyAV is missing
    except ImportError as error:
        raise ConfigError(
            f"devices.capture=stream needs PyAV ({error}): pip install 'agentrl-screens[stream]', "
            "or use devices.capture=auto"
        ) from error


def _sides(picture: Image) -> str:
    return f"{picture.shape[1]}x{picture.shape[0]}"
