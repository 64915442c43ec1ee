import base64
from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.actions.screen_actions import OpenApp
from agentrl.devices import CommandResult, Drag, Key, LongPress, Swipe, Tap
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.shell_script import Command
from agentrl.devices.input.input_commands import (
    ADB_KEYBOARD,
    Keyboard,
    broadcasts,
    input_command,
    input_text,
    key_code,
    to_pixel,
)
from agentrl.errors import DeviceError


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


def test_an_action_that_no_phone_performs_is_not_skipped_silently() -> None:
    with pytest.raises(AssertionError, match="OpenApp"):
        input_command(cast(Tap, OpenApp("Clock")), (720, 1280))


OLD = "com.android.inputmethod.latin/.LatinIME"


class PlayedPhone:
    """Answers `settings`, `ime` and `dumpsys input_method`."""

    def __init__(self, chosen: str = OLD, installed: Sequence[str] = (ADB_KEYBOARD, OLD)) -> None:
        self.chosen = chosen
        self.unbound = 0
        """How often it says that the input method does not run yet."""
        self.commands: list[Command] = []
        self._installed = installed

    def run(self, commands: Sequence[Command], deadline: Deadline) -> list[CommandResult]:
        self.commands += commands
        return [CommandResult(output=self._answer(tuple(command)), code=0) for command in commands]

    def _answer(self, command: tuple[str, ...]) -> str:
        match command:
            case ("settings", "get", "secure", "default_input_method"):
                return f"{self.chosen}\n"
            case ("ime", "set", wanted) if wanted in self._installed:
                self.chosen = wanted
            case ("ime", "reset"):
                self.chosen = OLD
            case ("dumpsys", "input_method"):
                self.unbound -= 1
                return f"mBoundToMethod={'false' if self.unbound >= 0 else 'true'}"
        return ""


def typed(commands: Sequence[Command]) -> str:
    """What a phone makes of these commands."""
    text = ""
    for command in commands:
        if command[0] == "input":
            text += command[2].replace("%s", " ")
        else:
            assert tuple(command[:6]) == ("am", "broadcast", "-a", "ADB_INPUT_B64", "--es", "msg")
            text += base64.b64decode(command[6]).decode()
    return text


def commands(keyboard: Keyboard, text: str) -> list[Command]:
    return keyboard.commands(text, Deadline(1))


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=50))
def test_ascii_arrives_unchanged_either_way(text: str) -> None:
    assert typed(input_text(text)) == text
    assert typed(broadcasts(text)) == text


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 300))
def test_any_text_arrives_unchanged_at_any_length(text: str, times: int) -> None:
    assert typed(broadcasts(text * times)) == text * times


def test_ascii_is_typed_with_any_input_method() -> None:
    phone = PlayedPhone()
    keyboard = Keyboard("P", phone.run)
    assert commands(keyboard, "") == []
    assert commands(keyboard, "a b") == [("input", "text", "a%sb")]
    assert phone.chosen == OLD
    keyboard.restore(Deadline(1))
    assert len(phone.commands) == 1, "it was asked what it has"


def test_other_text_selects_adbkeyboard_and_closing_restores_the_previous_method() -> None:
    phone = PlayedPhone()
    phone.unbound = 2
    keyboard = Keyboard("P", phone.run)
    assert typed(commands(keyboard, "héllo\n😀")) == "héllo\n😀"
    assert phone.chosen == ADB_KEYBOARD
    assert phone.unbound < 0, "it was waited for"
    assert commands(keyboard, "plain")[0][0] == "am"
    keyboard.restore(Deadline(1))
    assert phone.chosen == OLD
    keyboard.restore(Deadline(1))
    assert phone.commands[-1] == ("ime", "set", OLD)


@pytest.mark.parametrize("nothing", ["null", ""])
def test_without_a_previous_method_the_phone_resets_its_own(nothing: str) -> None:
    phone = PlayedPhone(nothing)
    keyboard = Keyboard("P", phone.run)
    commands(keyboard, "é")
    keyboard.restore(Deadline(1))
    assert phone.commands[-1] == ("ime", "reset")


def test_adbkeyboard_stays_if_it_was_already_selected() -> None:
    phone = PlayedPhone(ADB_KEYBOARD)
    keyboard = Keyboard("P", phone.run)
    assert commands(keyboard, "plain")[0][0] == "am"
    keyboard.restore(Deadline(1))
    assert phone.chosen == ADB_KEYBOARD


def test_adbkeyboard_is_selected_again_after_a_change() -> None:
    phone = PlayedPhone()
    keyboard = Keyboard("P", phone.run)
    commands(keyboard, "é")
    phone.chosen = OLD
    commands(keyboard, "é")
    assert phone.chosen == ADB_KEYBOARD
    keyboard.restore(Deadline(1))
    assert phone.chosen == OLD


def test_a_phone_without_adbkeyboard_says_what_to_do() -> None:
    keyboard = Keyboard("P", PlayedPhone(installed=[OLD]).run)
    with pytest.raises(DeviceError, match="Install ADBKeyboard"):
        commands(keyboard, "hé")
    assert commands(keyboard, "he") == [("input", "text", "he")]


def test_an_input_method_that_never_runs_is_an_error() -> None:
    phone = PlayedPhone()
    phone.unbound = 10**6
    with pytest.raises(DeviceError, match="ADBKeyboard did not start"):
        Keyboard("P", phone.run).commands("é", Deadline(0.1))


@pytest.mark.parametrize(("text", "why"), [("a\0", "NUL"), ("\ud83d", "lone surrogate")])
def test_text_that_cannot_be_typed_is_refused(text: str, why: str) -> None:
    phone = PlayedPhone()
    with pytest.raises(DeviceError, match=why):
        commands(Keyboard("P", phone.run), text)
    assert not phone.commands
