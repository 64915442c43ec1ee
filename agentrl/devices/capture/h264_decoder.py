"""H.264 into pictures; the only file that knows PyAV."""

from collections.abc import Iterator
from typing import cast

import av
from av.error import FFmpegError
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from agentrl.errors import CaptureError
from agentrl.types import Image

_ACCESS_UNIT_DELIMITER = b"\0\0\0\1\x09\xf0"


class Decoder:
    """An H.264 elementary stream, as it comes, into frames."""

    def __init__(self) -> None:
        """Waits for a key frame."""
        codec = av.CodecContext.create("h264", "r")
        assert isinstance(codec, VideoCodecContext)
        # Several threads would hold back as many frames.
        codec.thread_type = "NONE"
        # Without this, what is missing of a picture is made up.
        codec.options = {"err_detect": "explode"}
        self._codec = codec

    def feed(self, data: bytes) -> VideoFrame | None:
        """The last frame that these bytes complete.

        Raises:
            CaptureError: the stream is damaged; only a new one helps.
        """
        frames = list(self._decoded(data))
        return frames[-1] if frames else None

    def flush(self) -> VideoFrame | None:
        """The frame whose end nothing has told yet: no more comes before the screen changes.

        Raises:
            CaptureError: it was not there as a whole.
        """
        return self.feed(_ACCESS_UNIT_DELIMITER)

    def _decoded(self, data: bytes) -> Iterator[VideoFrame]:
        try:
            for packet in self._codec.parse(data):
                for frame in self._codec.decode(packet):
                    if frame.is_corrupt:
                        raise CaptureError("the stream holds a damaged frame")
                    yield frame
        except FFmpegError as error:
            raise CaptureError(f"the stream is damaged: {error}") from error


def rgb(frame: VideoFrame) -> Image:
    """The picture of a frame, uint8[H, W, 3]."""
    return cast(Image, frame.to_ndarray(format="rgb24"))
