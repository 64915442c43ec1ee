"""The base classes of captures."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import xxhash

from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.adb.shell_script import Snippet
from agentrl.types import Image


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
