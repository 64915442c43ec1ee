"""The stream of a phone that this test plays: real H.264 over a real socket."""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import cast

import av
import numpy as np
import pytest
from av.video.codeccontext import VideoCodecContext

from agentrl.devices import open_device
from agentrl.devices.adb.adb_socket import AdbSocket
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.capture import h264_stream
from agentrl.devices.capture.capture_trial import measure_lag_s
from agentrl.devices.capture.h264_stream import H264Decoder, StreamCapture, rgb
from agentrl.devices.capture.picture_checks import images_match
from agentrl.errors import CaptureError, ConfigError, DeviceError, DeviceTimeout
from agentrl.types import Image

WIDTH, HEIGHT = 96, 160
LAG_S = 0.1


class Encoder:
    """A phone's encoder: baseline H.264, a frame for every change."""

    def __init__(self, width: int = WIDTH, height: int = HEIGHT) -> None:
        codec = av.CodecContext.create("libx264", "w")
        assert isinstance(codec, VideoCodecContext)
        codec.width, codec.height, codec.pix_fmt = width, height, "yuv420p"
        codec.time_base = Fraction(1, 30)
        codec.options = {"preset": "ultrafast", "tune": "zerolatency", "profile": "baseline"}
        self._codec = codec

    def encode(self, picture: Image) -> bytes:
        frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
        return b"".join(bytes(packet) for packet in self._codec.encode(frame))


class PlugLink(AdbSocket):
    """One end of a pair of sockets."""

    def __init__(self, raw_socket: socket.socket, deadline: Deadline) -> None:
        self._plug = raw_socket
        self.deadline = deadline

    @property
    def raw_socket(self) -> socket.socket:
        return self._plug

    def check_accepted(self) -> None:
        """Everything is."""


class PlayedPhone:
    """A fake phone that streams its screen and serves raw captures of it."""

    serial = "P"
    display = ""

    def __init__(self) -> None:
        self.screen = painted(0)
        self.recorded: Image | None = None
        """What the stream shows where it is something else."""
        self.late_s = 0.0
        self.coming: list[threading.Timer] = []
        self.recordings = 0
        self.answer: bytes | None = None
        """What is sent in the place of a recording."""
        self._lock = threading.Lock()
        self._plug: socket.socket | None = None
        self._encoder = Encoder()

    def open(self, service: str, deadline: Deadline) -> AdbSocket:
        ours, theirs = socket.socketpair()
        if service.startswith("exec:screenrecord --output-format=h264 "):
            self.recordings += 1
            with self._lock:
                self.close()
                self._plug, self._encoder = theirs, Encoder(*self.screen.shape[1::-1])
            theirs.settimeout(5)
            self.send(self.answer)
            if self.answer is not None:
                self.close()
        return PlugLink(ours, deadline)

    def send(self, data: bytes | None = None) -> None:
        """Send one frame, or what is given."""
        with self._lock:
            assert self._plug is not None
            shown = self.screen if self.recorded is None else self.recorded
            self._plug.sendall(self._encoder.encode(shown) if data is None else data)

    def show(self, picture: Image) -> None:
        """Show something new; the stream follows a little later."""
        self.screen = picture
        if self._plug is not None:
            self.coming.append(threading.Timer(self.late_s, self.send))
            self.coming[-1].start()

    def close(self) -> None:
        if self._plug is not None:
            self._plug.close()

    def gone_after(self, failed: DeviceError) -> None:
        """It is there."""


def painted(level: int, width: int = WIDTH, height: int = HEIGHT) -> Image:
    picture = np.full((height, width, 3), 40, np.uint8)
    picture[height // 4 : height // 2, width // 4 :] = (level, 255 - level, 128)
    return picture


@pytest.fixture
def phone(monkeypatch: pytest.MonkeyPatch) -> PlayedPhone:
    played = PlayedPhone()
    monkeypatch.setattr(
        h264_stream.RawCapture, "frame", lambda self, deadline: played.screen.copy()
    )
    return played


Watch = Callable[..., StreamCapture]


@pytest.fixture
def watch(phone: PlayedPhone) -> Iterator[Watch]:
    made: list[StreamCapture] = []

    def start(lag_s: float = LAG_S) -> StreamCapture:
        made.append(StreamCapture(cast(DeviceTransport, phone), lag_s))
        return made[-1]

    yield start
    for capture in made:
        capture.close()
    for timer in phone.coming:
        timer.cancel()
        timer.join()
    phone.close()


def frame(capture: StreamCapture, seconds: float = 20) -> Image:
    return capture.frame(Deadline(seconds))


def test_the_newest_frame_is_returned_even_if_none_follows(
    phone: PlayedPhone, watch: Watch
) -> None:
    capture = watch()
    for level in (0, 100, 200):
        phone.show(painted(level))
        shown = frame(capture)
        assert shown.shape == (HEIGHT, WIDTH, 3)
        assert images_match(shown, painted(level))
    assert phone.recordings == 1


def test_a_frame_from_before_the_call_is_never_returned(phone: PlayedPhone, watch: Watch) -> None:
    capture = watch(lag_s=0.4)
    phone.late_s = 0.2
    frame(capture)
    for level in (60, 120, 180, 240):
        phone.show(painted(level))
        assert images_match(frame(capture), painted(level)), (
            "it was on the screen when it was asked for"
        )


def test_an_underestimated_lag_returns_stale_frames(phone: PlayedPhone, watch: Watch) -> None:
    capture = watch(lag_s=0.01)
    frame(capture)
    phone.late_s = 0.3
    phone.show(painted(200))
    assert not images_match(frame(capture), painted(200)), "which is why the lag is measured"


def test_the_lag_is_measured_around_changes_of_the_screen(phone: PlayedPhone, watch: Watch) -> None:
    capture, levels = watch(), iter(range(60, 250, 60))
    phone.late_s = 0.15
    change = lambda: phone.show(painted(next(levels)))  # noqa: E731
    lag_s = measure_lag_s(cast(DeviceTransport, phone), capture, change, 3, Deadline(60))
    assert 0.15 <= lag_s < 5


def test_a_stream_that_ended_is_restarted(phone: PlayedPhone, watch: Watch) -> None:
    capture = watch()
    frame(capture)
    phone.close()
    phone.screen = painted(200)
    assert images_match(frame(capture), painted(200))
    assert phone.recordings == 2


def test_a_rotated_screen_is_streamed_rotated(phone: PlayedPhone, watch: Watch) -> None:
    capture = watch()
    frame(capture)
    phone._encoder = Encoder(HEIGHT, WIDTH)
    phone.show(painted(200, HEIGHT, WIDTH))
    assert frame(capture).shape == (WIDTH, HEIGHT, 3)
    assert phone.recordings == 1


def test_a_damaged_stream_is_never_shown(phone: PlayedPhone, watch: Watch) -> None:
    capture = watch()
    frame(capture)
    noise = np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
    phone.screen = noise
    whole = phone._encoder.encode(noise)
    phone.send(whole[: len(whole) // 2])
    time.sleep(0.1)
    phone.screen = painted(200)
    assert images_match(frame(capture), painted(200)), "it was restarted"
    assert phone.recordings == 2


@pytest.mark.parametrize("answer", [b"", b"screenrecord: not found\n", b"\xff" * 5000])
def test_a_phone_without_screenrecord_is_an_error(
    phone: PlayedPhone, watch: Watch, answer: bytes
) -> None:
    phone.answer = answer
    with pytest.raises(CaptureError, match="P: screenrecord returned no frame"):
        frame(watch())


def test_a_stream_that_never_begins_is_a_timeout(phone: PlayedPhone, watch: Watch) -> None:
    phone.send = lambda data=None: None  # type: ignore[assignment,misc]
    start = time.monotonic()
    with pytest.raises(DeviceTimeout, match=r"P: screenrecord: no answer within 0\.3 s"):
        frame(watch(), seconds=0.3)
    assert time.monotonic() - start < 5


def test_a_stream_of_another_screen_is_an_error(phone: PlayedPhone, watch: Watch) -> None:
    phone.recorded = painted(200)
    capture = watch()
    with pytest.raises(CaptureError, match="the 96x160 stream does not match"):
        frame(capture)
    phone.recorded = None
    assert images_match(frame(capture), phone.screen)


def test_a_frozen_stream_is_detected(
    phone: PlayedPhone, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(h264_stream, "_CHECK_EVERY_S", 0.0)
    capture = watch()
    frame(capture)
    phone.screen = painted(200)  # and the stream says nothing of it
    with pytest.raises(CaptureError, match="stream does not match"):
        frame(capture)


def test_a_black_stream_is_an_error(phone: PlayedPhone, watch: Watch) -> None:
    phone.screen = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    with pytest.raises(CaptureError, match="is all black"):
        frame(watch())


def test_a_screen_that_never_rests_is_streamed(phone: PlayedPhone, watch: Watch) -> None:
    capture, ended = watch(), threading.Event()

    def move() -> None:
        level = 0
        while not ended.wait(0.01):
            level = (level + 5) % 250
            phone.screen = painted(level)
            phone.send()

    frame(capture)
    moving = threading.Thread(target=move)
    moving.start()
    try:
        for _ in range(5):
            assert capture.newest(Deadline(10)).shape == (HEIGHT, WIDTH, 3)
    finally:
        ended.set()
        moving.join()


@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_a_stream_is_decoded_however_its_bytes_are_split(piece: int) -> None:
    decoder, encoder, last = H264Decoder(), Encoder(), None
    for level in (0, 100, 200):
        data = encoder.encode(painted(level))
        for at in range(0, len(data), piece):
            last = decoder.feed(data[at : at + piece]) or last
    last = decoder.flush() or last
    assert last is not None
    assert images_match(rgb(last), painted(200))


def test_without_pyav_the_stream_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ConfigError, match=r"pip install 'agentrl-screens\[stream\]'"):
        open_device("virtual", capture="stream")
