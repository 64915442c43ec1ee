import time
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.devices import (
    Action,
    Device,
    Done,
    Drag,
    Key,
    LongPress,
    Swipe,
    Tap,
    Type,
    Wait,
    dispatch_action,
)
from agentrl.devices.input.input_commands import input_command, key_code, to_pixel


@given(st.floats(0, 1), st.integers(1, 5000))
def test_every_position_is_a_pixel_of_the_screen(position: float, length: int) -> None:
    assert 0 <= int(to_pixel(position, length)) < length


@pytest.mark.parametrize("position", [-0.01, 1.01, float("nan"), float("inf")])
def test_a_position_outside_the_screen_is_refused(position: float) -> None:
    with pytest.raises(ValueError, match="outside"):
        to_pixel(position, 720)


@pytest.mark.parametrize("name", ["", "BACK; reboot", "BACK\n", "B\u0410CK", "--help", "A" * 99])
def test_an_invalid_key_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a valid key name"):
        key_code(name)


def test_each_action_becomes_one_command() -> None:
    size = (720, 1280)
    assert input_command(Tap(0.5, 1.0), size) == ("input", "tap", "360", "1279")
    assert input_command(Key("BACK"), size) == ("input", "keyevent", "KEYCODE_BACK")
    held = ("input", "swipe", "360", "640", "360", "640", "800")
    assert input_command(LongPress(0.5, 0.5), size) == held
    swiped = ("input", "swipe", "0", "0", "719", "1279", "300")
    assert input_command(Swipe(0, 0, 1, 1), size) == swiped
    dropped = ("input", "draganddrop", "0", "0", "719", "1279", "100")
    assert input_command(Drag(0, 0, 1, 1), size, 0.1) == dropped


class Recorder:
    """Records the calls made to it."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> object:
        return lambda *arguments: self.calls.append((name, *arguments))


@pytest.mark.parametrize(
    ("action", "calls"),
    [
        (Tap(0.1, 0.2), [("tap", 0.1, 0.2)]),
        (LongPress(0.1, 0.2), [("long_press", 0.1, 0.2)]),
        (Swipe(0.1, 0.2, 0.3, 0.4), [("swipe", 0.1, 0.2, 0.3, 0.4)]),
        (Drag(0.1, 0.2, 0.3, 0.4), [("drag", 0.1, 0.2, 0.3, 0.4)]),
        (Type("it's"), [("text", "it's")]),
        (Key("BACK"), [("key", "BACK")]),
        (Wait(0.02), []),
        (Done(), []),
    ],
)
def test_every_action_is_one_call_to_the_phone(
    action: Action, calls: list[tuple[object, ...]]
) -> None:
    phone = Recorder()
    start = time.monotonic()
    dispatch_action(cast(Device, phone), action)
    assert phone.calls == calls
    if isinstance(action, Wait):
        assert time.monotonic() - start >= action.seconds
