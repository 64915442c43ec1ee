"""`screenrecord`: an H.264 stream, of which the newest frame is taken.

A stream is the fastest capture of most real phones, and the easiest to be fooled by. Its frames
come some time after what they show, nothing in it tells how long, and where the screen stands
still nothing comes at all. So three rules hold:

- A frame is only given out when `lag_s` has passed since it was asked for: what was on the screen
  by then has arrived. The lag is measured
  (`agentrl.devices.capture_benchmark`); the default is a slow phone's.
- It is compared with a raw capture every now and then, and whenever most of the screen has changed:
  a recording keeps its shape when the phone is turned. One that shows something else is started
  anew, and is an error if that does not help.
- A damaged stream is never decoded further, and one that has ended is started anew.

Its pictures are compressed: they resemble those of the other captures and do not equal them.
"""

import time

import numpy as np

from agentrl.devices.adb.adb_socket import Deadline, device_error
from agentrl.devices.adb.device_transport import FAILURES, Line
from agentrl.devices.capture.capture_method import check_lit
from agentrl.devices.capture.image_similarity import alike, difference
from agentrl.devices.capture.screencap_raw import RawCapture
from agentrl.devices.capture.screenrecord import Recording
from agentrl.errors import CaptureError, ConfigError
from agentrl.types import Image

_RECORD = "screenrecord --output-format=h264 --time-limit 180 -"
_CHECK_EVERY_S = 10.0
_CHECKS = 3
_MOST = 1 / 3
"""Of the screen: where more of it has changed, it may be another one."""
_DARK = 8
"""Black is not quite black in a compressed picture."""


class StreamCapture:
    """See Capture.

    Args:
        line: to the phone.
        lag_s: how long it takes, at most, until the stream shows what the screen shows.

    Raises:
        ConfigError: PyAV is not installed.
    """

    def __init__(self, line: Line, lag_s: float = 0.25) -> None:
        check_decoder()
        self.lag_s = lag_s
        self._line = line
        self._raw = RawCapture(line)
        self._run: Recording | None = None
        self._checked: Image = np.zeros((1, 1, 3), np.uint8)
        self._check_at_s = 0.0

    def frame(self, deadline: Deadline) -> Image:
        """See Capture.frame."""
        try:
            picture = self.newest(deadline)
            if time.monotonic() >= self._check_at_s or difference(self._checked, picture) > _MOST:
                picture = self._check(picture, deadline)
                self._checked, self._check_at_s = picture, time.monotonic() + _CHECK_EVERY_S
        except TimeoutError as error:
            raise device_error(
                error, f"{self._line.serial}: screenrecord", deadline.seconds
            ) from error
        except CaptureError:
            self.close()
            raise
        return check_lit(self._line.serial, picture, dark=_DARK).copy()

    def close(self) -> None:
        """End the recording."""
        run, self._run = self._run, None
        self._check_at_s = 0.0
        if run is not None:
            run.close()

    def newest(self, deadline: Deadline) -> Image:
        """The newest frame, once all that was on the screen by now is in it; not checked.

        Raises:
            CaptureError: there is none.
            TimeoutError: there is none in time.
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
        self._line.check_online()
        raise CaptureError(f"{self._line.serial}: screenrecord gave no frame: {why}")

    def _start(self, deadline: Deadline) -> Recording:
        self.close()
        try:
            link = self._line.open(f"exec:{_RECORD} 2>/dev/null", deadline)
        except FAILURES as error:
            raise self._line.failure(error, "screenrecord", deadline.seconds) from error
        self._run = Recording(link)
        return self._run

    def _check(self, picture: Image, deadline: Deadline) -> Image:
        """The newest frame, once the stream and a raw capture show the same screen."""
        for attempt in range(_CHECKS):
            real = self._raw.frame(deadline)
            following = self.newest(deadline)
            # The screen may have changed before the raw capture or after it.
            if alike(real, picture) or alike(real, following):
                return following
            picture = following
            if attempt == 0 and real.shape != following.shape:
                self.close()
                picture = self.newest(deadline)
        raise CaptureError(
            f"{self._line.serial}: the stream shows {_sides(picture)} of something else than the "
            f"screen, which is {_sides(real)}; take devices.capture=auto"
        )


def check_decoder() -> None:
    """See whether what decodes a stream is installed.

    Raises:
        ConfigError: it is not.
    """
    try:
        import agentrl.devices.capture.h264_decoder  # noqa: F401 - to know it before it is needed
    except ImportError as error:
        raise ConfigError(
            f"devices.capture=stream needs PyAV ({error}); say pip install 'agentrl[stream]', "
            "or take devices.capture=auto"
        ) from error


def _sides(picture: Image) -> str:
    return f"{picture.shape[1]}x{picture.shape[0]}"
