"""Raw, PNG and framebuffer captures, byte by byte."""

import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.devices.adb.adb_socket import AdbSocket
from agentrl.devices.adb.device_transport import DeviceTransport
from agentrl.devices.capture import screencap
from agentrl.devices.capture.framebuffer import FramebufferCapture
from agentrl.devices.capture.screencap import RawCapture
from agentrl.errors import CaptureError
from agentrl.types import Image
from virtual_phone.system.screen_frame import ScreenFrame

WIDTH, HEIGHT = 24, 32
NO_PHONE = cast(DeviceTransport, SimpleNamespace(serial="P"))


class BytesLink:
    """Gives some bytes and then its end."""

    def __init__(self, data: bytes) -> None:
        self._left = data

    def read_into(self, view: memoryview) -> int:
        piece, self._left = self._left[: len(view)], self._left[len(view) :]
        view[: len(piece)] = piece
        return len(piece)

    def read(self, count: int) -> bytes:
        piece, self._left = self._left[:count], self._left[count:]
        return piece

    def read_all(self) -> bytes:
        return self.read(len(self._left))


def link(data: bytes) -> AdbSocket:
    return cast(AdbSocket, BytesLink(data))


def picture() -> Image:
    return np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)


def raw(rgb: Image, *, header: Sequence[int] | None = None) -> bytes:
    header = (rgb.shape[1], rgb.shape[0], 1, 0) if header is None else header
    rgba = cv2.cvtColor(rgb, cv2.COLOR_RGB2RGBA)
    return struct.pack(f"<{len(header)}I", *header) + rgba.tobytes()


PLACES = {
    "RGBA": (32, (0, 8), (16, 8), (8, 8), (24, 8), cv2.COLOR_RGB2RGBA),
    "RGBX": (32, (0, 8), (16, 8), (8, 8), (24, 0), cv2.COLOR_RGB2RGBA),
    "BGRA": (32, (16, 8), (0, 8), (8, 8), (24, 8), cv2.COLOR_RGB2BGRA),
    "RGB": (24, (0, 8), (16, 8), (8, 8), (0, 0), None),
    "BGR": (24, (16, 8), (0, 8), (8, 8), (0, 0), cv2.COLOR_RGB2BGR),
    "565": (16, (11, 5), (0, 5), (5, 6), (0, 0), cv2.COLOR_RGB2BGR565),
}
"""Bits, and the place and the length of red, blue, green and alpha: the order of the protocol."""


def framebuffer(rgb: Image, form: str, version: int, /, **changed: int) -> bytes:
    bits, *places, code = PLACES[form]
    pixels = (rgb if code is None else cv2.cvtColor(rgb, code)).tobytes()
    names = ("version", "bits", "space", "size", "width", "height")
    values: dict[str, Any] = dict(
        zip(names, (version, bits, 1, len(pixels), rgb.shape[1], rgb.shape[0]), strict=True)
    )
    if version == 1:
        del values["space"]
    values.update(changed)
    flat = [number for place in places for number in cast(tuple[int, int], place)]
    return struct.pack(f"<{len(values) + 8}I", *values.values(), *flat) + pixels


@pytest.mark.parametrize("header", [(WIDTH, HEIGHT, 1), (WIDTH, HEIGHT, 2, 7)])
def test_raw_frames_of_old_and_new_phones_are_read(header: Sequence[int]) -> None:
    shown = picture()
    capture = RawCapture(NO_PHONE)
    for _ in range(2):
        assert np.array_equal(capture.read(link(raw(shown, header=header))), shown)


def test_one_lit_pixel_is_a_picture_but_black_is_not() -> None:
    frame = np.zeros((320, 240, 3), np.uint8)
    with pytest.raises(CaptureError, match="P: the 240x320 frame is all black"):
        RawCapture(NO_PHONE).read(link(raw(frame)))
    with pytest.raises(CaptureError, match="is all black"):
        screencap.decode_png(encoded(frame), "P")
    with pytest.raises(CaptureError, match="is all black"):
        FramebufferCapture(NO_PHONE).read(link(framebuffer(frame, "RGBA", 1)))
    frame[5] = 255  # the bar of the system above a window that forbids captures
    with pytest.raises(CaptureError, match="black except for its edges"):
        RawCapture(NO_PHONE).read(link(raw(frame)))
    frame[5] = 0
    frame[117, 5, 2] = 1
    assert RawCapture(NO_PHONE).read(link(raw(frame))).sum() == 1
    assert screencap.decode_png(encoded(frame), "P").sum() == 1
    assert FramebufferCapture(NO_PHONE).read(link(framebuffer(frame, "BGRA", 2))).sum() == 1


@pytest.mark.parametrize("header", [(0, 5, 1, 0), (5, 70_000, 1, 0), (0xFFFFFFFF,) * 4])
def test_an_invalid_header_is_not_a_frame(header: Sequence[int]) -> None:
    with pytest.raises(CaptureError, match="not a frame; it starts with"):
        RawCapture(NO_PHONE).read(link(raw(picture(), header=header)))


def test_unknown_pixel_formats_are_refused() -> None:
    with pytest.raises(CaptureError, match="format 4, not RGBA"):
        RawCapture(NO_PHONE).read(link(raw(picture(), header=(WIDTH, HEIGHT, 4, 0))))


@given(st.integers(0, WIDTH * HEIGHT * 4 + 11))
def test_a_truncated_raw_frame_is_an_error(length: int) -> None:
    whole = raw(picture(), header=(WIDTH, HEIGHT, 1))
    with pytest.raises(CaptureError):
        RawCapture(NO_PHONE).read(link(whole[:length]))


def split(rgb: Image) -> ScreenFrame:
    return ScreenFrame(rgb[:2], rgb[2:])


SPANS = st.tuples(st.integers(0, HEIGHT - 1), st.integers(1, HEIGHT))
CHANGES = st.lists(st.tuples(SPANS, SPANS, st.integers(0, 255)), max_size=6)


@given(changes=st.lists(CHANGES, max_size=5), width=st.sampled_from([5, 16, 23, 24]))
def test_changes_of_a_screen_add_up_to_what_it_shows(
    changes: list[list[tuple[tuple[int, int], tuple[int, int], int]]], width: int
) -> None:
    capture, shown = RawCapture(NO_PHONE), picture()[:, :width].copy()
    known: ScreenFrame | None = None
    for boxes in ([], *changes):
        shown = shown.copy()
        for (top, height), (left, wide), value in boxes:
            shown[top : top + height, left % width : left % width + wide] ^= value
        shown[-1, -1] = 1  # never black
        first, again = split(shown), split(shown)
        read = capture.read(link(first.changes(known)))
        assert np.array_equal(read, shown)
        assert not read.flags.writeable
        assert capture.parse(bytes(again.changes(first))) is read
        known = again


def test_changes_are_small_and_only_those_of_the_last_picture_are_accepted() -> None:
    capture, shown, one, two = RawCapture(NO_PHONE), picture(), picture(), picture()
    one[3, 4] ^= 1
    two[20:23, 7:9] ^= 1
    first, second, third = split(shown), split(one), split(two)
    with pytest.raises(CaptureError, match="1 changes to an unknown picture"):
        capture.read(link(second.changes(first)))
    kept = capture.read(link(first.changes(None)))
    assert len(second.changes(first)) < 120
    with pytest.raises(CaptureError, match="2 changes to an unknown picture"):
        capture.read(link(third.changes(second)))
    assert np.array_equal(capture.read(link(third.changes(first))), two)
    assert np.array_equal(kept, shown)
    capture.close()
    with pytest.raises(CaptureError, match="unknown picture"):
        capture.read(link(first.changes(third)))
    black = ScreenFrame(np.zeros_like(shown[:2]), np.zeros_like(shown[2:]))
    capture.read(link(first.changes(None)))
    with pytest.raises(CaptureError, match="all black"):
        capture.read(link(black.changes(first)))
    assert np.array_equal(capture.read(link(second.changes(first))), one)


def test_many_changes_are_followed_by_a_capture_outside_the_shell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(screencap, "_LARGE", 300)
    capture = RawCapture(cast(DeviceTransport, SimpleNamespace(serial="P", display=None)))
    first, second = split(picture()), split(picture())
    capture.read(link(first.changes(None)))
    assert capture.command is None
    capture.read(link(second.changes(first)))
    assert capture.command is not None


@given(st.integers(0, len(split(picture()).changes(None)) - 1))
def test_truncated_changes_are_an_error(length: int) -> None:
    capture = RawCapture(NO_PHONE)
    with pytest.raises(CaptureError):
        capture.read(link(split(picture()).changes(None)[:length]))


def test_the_same_bytes_in_another_format_are_another_picture() -> None:
    capture, shown = FramebufferCapture(NO_PHONE), picture()
    first = capture.read(link(framebuffer(shown, "RGB", 1)))
    assert capture.read(link(framebuffer(shown, "RGB", 1))) is first
    bgr = framebuffer(shown[..., ::-1].copy(), "BGR", 1)
    assert bgr[-shown.nbytes :] == shown.tobytes()
    assert np.array_equal(capture.read(link(bgr)), shown[..., ::-1])


def encoded(rgb: Image) -> bytes:
    done, data = cv2.imencode(".png", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))
    assert done
    return data.tobytes()


PNG = encoded(picture())


def test_a_png_is_read() -> None:
    assert np.array_equal(screencap.decode_png(PNG, "P"), picture())
    assert np.array_equal(screencap.decode_png(PNG + b"more", "P"), picture())


@given(st.integers(0, len(PNG) - 1))
def test_a_truncated_png_is_an_error(length: int) -> None:
    with pytest.raises(CaptureError):
        screencap.decode_png(PNG[:length], "P")


@given(st.integers(0, len(PNG) - 1), st.integers(1, 255))
def test_a_png_with_one_damaged_byte_is_an_error(at: int, change: int) -> None:
    damaged = bytearray(PNG)
    damaged[at] ^= change
    with pytest.raises(CaptureError):
        screencap.decode_png(bytes(damaged), "P")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("form", PLACES)
def test_every_framebuffer_format_is_read(form: str, version: int) -> None:
    shown = picture()
    if form == "565":
        shown = (shown & 0xF8) | (shown >> 5)
        shown[..., 1] = (shown[..., 1] & 0xFC) | (shown[..., 1] >> 6)
    read = FramebufferCapture(NO_PHONE).read(link(framebuffer(shown, form, version)))
    assert np.abs(read.astype(int) - shown).max() <= (8 if form == "565" else 0)
    assert read.dtype == np.uint8


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"version": 16}, "framebuffer version 16 is not supported"),
        ({"bits": 8}, "framebuffer pixel format"),
        ({"size": 100}, "announced 100 bytes for 24x32 pixels of 4 bytes"),
        ({"width": 0}, "not a frame"),
        ({"height": 1 << 31}, "not a frame"),
    ],
)
def test_an_invalid_framebuffer_is_an_error(changed: dict[str, int], complaint: str) -> None:
    with pytest.raises(CaptureError, match=complaint):
        FramebufferCapture(NO_PHONE).read(link(framebuffer(picture(), "RGBA", 1, **changed)))


@given(st.integers(0, WIDTH * HEIGHT * 4 + 51))
def test_a_truncated_framebuffer_is_an_error(length: int) -> None:
    whole = framebuffer(picture(), "RGBA", 1)
    with pytest.raises(CaptureError):
        FramebufferCapture(NO_PHONE).read(link(whole[:length]))


@given(st.binary(max_size=200))
def test_random_bytes_are_not_a_picture(noise: bytes) -> None:
    for read in (RawCapture(NO_PHONE).read, FramebufferCapture(NO_PHONE).read):
        with pytest.raises(CaptureError):
            read(link(noise))
    with pytest.raises(CaptureError):
        screencap.decode_png(noise, "P")
