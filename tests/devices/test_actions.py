import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.devices.actions import (
    KEYS,
    MAX_WAIT_S,
    Action,
    Key,
    Swipe,
    Tap,
    Wait,
    format_action,
    input_command,
    parse_action,
    pixel,
)
from agentrl.errors import ActionError

positions = st.integers(0, 100).map(lambda hundredths: hundredths / 100)
actions = st.one_of(
    st.builds(Tap, positions, positions),
    st.builds(Swipe, positions, positions, positions, positions),
    st.builds(Key, st.sampled_from(KEYS)),
    st.builds(Wait, st.integers(0, int(MAX_WAIT_S * 100)).map(lambda n: n / 100)),
)


@given(actions)
def test_every_action_is_read_as_it_was_said(action: Action) -> None:
    assert parse_action(f"I think.\n{format_action(action)}") == action


@given(st.text(max_size=60))
def test_a_reply_is_an_action_or_an_action_error(reply: str) -> None:
    for text in (reply, f"<action>{reply}</action>", f"<action>tap({reply})</action>"):
        try:
            action = parse_action(text)
        except ActionError:
            continue
        assert parse_action(format_action(action)) is not None


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        ("tap(0.5, 0.5)", "0 complete"),
        ("<action>tap(0.5, 0.5)</action> <action>tap(0.1, 0.1)</action>", "2 complete"),
        ("<action>tap(0.5, 0.5)", "0 complete"),
        ("<action>tap(1.2, 0.5)</action>", "1.2 is outside the screen"),
        ("<action>tap(-0.1, 0.5)</action>", "'-0.1' is no number"),
        ("<action>tap(nan, 0.5)</action>", "'nan' is no number"),
        ("<action>tap(0.5)</action>", "tap takes 2 numbers, not 1"),
        ("<action>tab(0.5, 0.5)</action>", "did you mean 'tap'"),
        ("<action>key(POWER)</action>", "keys are BACK"),
        ("<action>key(BACK; reboot)</action>", "there is no key"),
        ("<action>wait(1000)</action>", "from 0 to 5"),
        ("<action>go left</action>", "they read tap"),
    ],
)
def test_what_is_no_action_says_why(reply: str, complaint: str) -> None:
    with pytest.raises(ActionError, match=complaint):
        parse_action(reply)


@given(st.floats(0, 1), st.integers(1, 5000))
def test_every_position_is_a_pixel_of_the_screen(position: float, length: int) -> None:
    assert 0 <= int(pixel(position, length)) < length


def test_an_action_becomes_one_command() -> None:
    assert input_command(Tap(0.5, 1.0), (720, 1280)) == ("input", "tap", "360", "1279")
    assert input_command(Key("BACK"), (720, 1280)) == ("input", "keyevent", "KEYCODE_BACK")
    with pytest.raises(ValueError, match="outside"):
        input_command(Tap(0.5, 1.1), (720, 1280))
