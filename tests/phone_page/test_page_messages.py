import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentrl.phone_page.page_messages import (
    BadMessage,
    FramePainted,
    Gesture,
    PageHello,
    PageResized,
    VisibilityChanged,
    parse_message,
)

HELLO = {"type": "hello", "page": "0" * 32, "width": 720, "height": 1280, "visible": True}
GESTURE = {
    "type": "gesture", "number": 1, "frame": 3, "x1": 0.5, "y1": 0, "x2": 0.5, "y2": 0.25,
    "ms": 80, "moved": 3.5, "cancelled": False,
}  # fmt: skip


def without_type(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "type"}


def test_every_valid_page_message_is_parsed() -> None:
    assert parse_message(json.dumps(HELLO)) == PageHello(**without_type(HELLO))
    assert parse_message(json.dumps(GESTURE)) == Gesture(**without_type(GESTURE))
    assert parse_message('{"type": "size", "width": 64, "height": 4096}') == PageResized(
        width=64, height=4096
    )
    assert parse_message('{"type": "visible", "visible": false}') == VisibilityChanged(
        visible=False
    )
    assert parse_message('{"type": "painted", "frame": 7}') == FramePainted(frame=7)


BAD = [
    "", "null", "[]", "7", '"hello"', "{}", '{"type": null}', '{"type": []}', '{"type": "eval"}',
    "[" * 2000, "9" * 2000, '{"type": "painted", "frame": 1e3}', '{"type": "painted"}',
    '{"type": "painted", "frame": true}', '{"type": "painted", "frame": -1}',
    '{"type": "painted", "frame": NaN}', '{"type": "painted", "frame": 1, "more": 1}',
    '{"type": "visible", "visible": 1}', '{"type": "visible", "visible": "true"}',
    '{"type": "size", "width": 63, "height": 600}', '{"type": "size", "width": 600, "height": 1e9}',
    '{"type": "painted", "frame": 1' + " " * 4000 + "}",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_invalid_page_messages_are_refused(text: str) -> None:
    with pytest.raises(BadMessage):
        parse_message(text)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e9", '"0.5"', "null", "true"])
@pytest.mark.parametrize("name", ["x1", "y2", "moved"])
def test_positions_must_be_finite_numbers(name: str, value: str) -> None:
    text = json.dumps({**GESTURE, name: "?"}).replace('"?"', value)
    with pytest.raises(BadMessage):
        parse_message(text)


@pytest.mark.parametrize("page", ["", "0" * 31, "G" * 32, "0" * 33, "0" * 31 + "\n", 7, None])
def test_a_page_id_has_32_hex_digits(page: object) -> None:
    with pytest.raises(BadMessage):
        parse_message(json.dumps({**HELLO, "page": page}))


VALUES = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9)
NAMES = st.sampled_from([*GESTURE, *HELLO])


@settings(max_examples=60)
@given(st.text() | st.dictionaries(NAMES, VALUES | st.lists(VALUES, max_size=2)).map(json.dumps))
@example('{"type": {"type": "hello"}}')
@example("\ud800")
def test_junk_raises_only_bad_message(text: str) -> None:
    with pytest.raises(BadMessage):
        parse_message(text)


@pytest.mark.parametrize(
    ("moved", "ms", "is_tap"), [(0, 0, True), (12, 799, True), (12.5, 50, False), (0, 800, False)]
)
def test_a_tap_is_short_and_does_not_move(moved: float, ms: int, is_tap: bool) -> None:
    gesture = parse_message(json.dumps({**GESTURE, "moved": moved, "ms": ms}))
    assert isinstance(gesture, Gesture)
    assert gesture.is_tap is is_tap
