"""Decodes H.264 to pictures; the only file that uses PyAV."""

from collections.abc import Iterator
from typing import cast

import av
from av.error import FFmpegError
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from agentrl.errors import CaptureError
from agentrl.types import Image

_ACCESS_UNIT_DELIMITER = b"\0\0\0\1\x09\xf0"


class H264Decoder:
    """Decodes an H.264 elementary stream incrementally."""

    def __init__(self) -> None:
        """Waits for a key frame."""
        codec = av.CodecContext.create("h264", "r")
        assert isinstance(codec, VideoCodecContext)
        # N threads would delay the output by N frames.
        codec.thread_type = "NONE"
        # Without this, missing parts of a picture are invented.
        codec.options = {"err_detect": "explode"}
        self._codec = codec

    def feed(self, data: bytes) -> VideoFrame | None:
        """The last frame completed by these bytes, if any.

        Raises:
            CaptureError: the stream is damaged; a new one has to be started.
        """
        frames = list(self._decoded(data))
        return frames[-1] if frames else None

    def flush(self) -> VideoFrame | None:
        """The pending frame, whose end is only marked by the next one.

        Raises:
            CaptureError: it was incomplete.
        """
        return self.feed(_ACCESS_UNIT_DELIMITER)

    def _decoded(self, data: bytes) -> Iterator[VideoFrame]:
        try:
            for packet in self._codec.parse(data):
                for frame in self._codec.decode(packet):
                    if frame.is_corrupt:
                        raise CaptureError("the stream contains a damaged frame")
                    yield frame
        except FFmpegError as error:
            raise CaptureError(f"the stream is damaged: {error}") from error


def rgb(frame: VideoFrame) -> Image:
    """The picture of a frame, uint8[H, W, 3]."""
    return cast(Image, frame.to_ndarray(format="rgb24"))
