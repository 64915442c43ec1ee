"""Checks of a capture method, a class of `devices.capture`, on a virtual phone."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from agentrl.actions.screen_actions import Tap
from agentrl.check.extension_catalog import reference
from agentrl.check.support.virtual_probe_phone import probe_phone, set_fault
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.capture import Capture
from agentrl.devices.capture.picture_checks import images_match
from agentrl.devices.capture.screencap import RawCapture
from agentrl.errors import DeviceError
from agentrl.types import Image

_FRAME_S = 10.0
_FAULTS = ("truncated", "header", "empty", "black", "secure")


def check_installed(target: type[Capture]) -> None:
    """The library that the capture method needs is installed."""
    target.check_installed()


def check_picture(target: type[Capture]) -> None:
    """A picture is uint8[H, W, 3], RGB, and shows the screen."""
    with _phone(target) as phone:
        picture, expected = _frame(phone.screen.capture), _screencap(phone)
        assert isinstance(picture, np.ndarray), f"frame() returned {type(picture).__name__}"
        got = f"{picture.dtype}{list(picture.shape)}"
        screen = f"uint8{list(expected.shape)}"
        assert got == screen, f"frame() returned {got}; the screen is {screen}"
        assert images_match(picture, expected), (
            "the picture differs from `screencap`: are red and blue swapped, or is it rotated?"
        )


def check_owned(target: type[Capture]) -> None:
    """A picture never changes: each capture has its own memory."""
    with _phone(target) as phone:
        first = _frame(phone.screen.capture)
        kept = first.copy()
        phone.perform(Tap(0.5, 0.25))
        second = _frame(phone.screen.capture)
        assert not np.shares_memory(first, second), "two pictures share their memory; return a copy"
        assert np.array_equal(first, kept), "the first picture changed; return a copy"


def check_fresh(target: type[Capture]) -> None:
    """A picture is never older than the call: each touch shows in the next picture."""
    with _phone(target) as phone:
        for _ in range(4):
            before = _frame(phone.screen.capture)
            phone.perform(Tap(0.5, 0.25))
            assert not images_match(before, _frame(phone.screen.capture)), (
                "a touch before the call does not show"
            )


def check_failures(target: type[Capture]) -> None:
    """A capture that fails on the phone raises DeviceError; it never returns a picture."""
    with _phone(target) as phone:
        expected = _screencap(phone)
        for fault in _FAULTS:
            set_fault(phone, "capture", fault)
            try:
                picture = _frame(phone.screen.capture)
            except DeviceError:
                continue
            # A method that the fault does not affect, such as a stream, may return a correct one.
            assert images_match(picture, expected), (
                f"with a capture that is {fault}, frame() returned a wrong picture; check its "
                "length, and call agentrl.devices.capture.check_lit"
            )
        set_fault(phone, "capture", "")
        assert images_match(_frame(phone.screen.capture), expected), (
            "the capture does not work after failures"
        )


def check_rotated(target: type[Capture]) -> None:
    """A phone held sideways is captured sideways."""
    with _phone(target) as phone:
        height, width = _frame(phone.screen.capture).shape[:2]
        set_fault(phone, "rotation", "1")
        phone.screen.capture.close()
        found = _frame(phone.screen.capture).shape[:2]
        assert found == (width, height), (
            f"the picture is {found[1]}x{found[0]}, not {height}x{width}"
        )


def check_deadline(target: type[Capture]) -> None:
    """A phone that never answers raises DeviceError at the deadline."""
    with _phone(target) as phone:
        phone.screen.capture.close()
        set_fault(phone, "hang", "1")
        started = time.monotonic()
        try:
            phone.screen.capture.frame(Deadline(0.5))
        except DeviceError:
            waited_s = time.monotonic() - started
            assert waited_s < 5, f"frame() had 0.5 s and took {waited_s:.1f} s"
            return
        raise AssertionError("frame() returned a picture although the phone does not answer")


def check_close(target: type[Capture]) -> None:
    """The capture can be closed twice, and restarts at the next call."""
    with _phone(target) as phone:
        _frame(phone.screen.capture)
        phone.screen.capture.close()
        phone.screen.capture.close()
        assert images_match(_frame(phone.screen.capture), _screencap(phone))


@contextmanager
def _phone(target: type[Capture]) -> Iterator[AdbPhone]:
    with probe_phone(capture=reference(target)) as phone:
        yield phone


def _frame(capture: Capture) -> Image:
    return capture.frame(Deadline(_FRAME_S))


def _screencap(phone: AdbPhone) -> Image:
    return RawCapture(phone.transport).frame(Deadline(_FRAME_S))
