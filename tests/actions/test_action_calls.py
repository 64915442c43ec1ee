import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.actions.action_calls import STYLES, ActionCall, ActionSet, in_json
from agentrl.errors import ActionError, ConfigError

FORMS = ("up", "chop()", "tap(x, y)", "say(text)", "key(NAME)")
TAG, TOOL = ActionSet(FORMS), ActionSet(FORMS, style="tool")

NUMBERS = st.floats(0, 1).map(lambda x: f"{x:.2f}") | st.integers().map(str)
TEXTS = st.text(max_size=20).map(in_json)
SAID = st.one_of(
    st.just(("up", ())),
    st.just(("chop", ())),
    st.tuples(st.just("tap"), st.tuples(NUMBERS, NUMBERS)),
    st.tuples(st.just("say"), st.tuples(TEXTS)),
)


@pytest.mark.parametrize("style", STYLES)
@given(said=SAID)
def test_a_written_action_is_parsed_back(style: str, said: tuple[str, tuple[str, ...]]) -> None:
    calls, (name, arguments) = ActionSet(FORMS, style=style), said
    call = calls.parse(f"<think>so</think>{calls.format(name, *arguments)}")
    assert call.name == name
    assert list(map(json.loads, call.arguments)) == list(map(json.loads, arguments))


def test_each_style_has_its_own_syntax() -> None:
    assert TAG.format("tap", "0.21", "0.70") == "<action>tap(0.21, 0.70)</action>"
    assert TAG.format("up") == "<action>up</action>"
    assert TAG.format("chop") == "<action>chop()</action>"
    assert TOOL.format("tap", "0.21", "0.70") == (
        '<tool_call>{"name": "tap", "arguments": {"x": 0.21, "y": 0.70}}</tool_call>'
    )
    assert TOOL.format("key", "BACK") == (
        '<tool_call>{"name": "key", "arguments": {"name": "BACK"}}</tool_call>'
    )
    assert TAG.describe().startswith("<action>up</action>, <action>chop()</action>")


@pytest.mark.parametrize("word", ["true", "null", "NaN", "-Infinity", "BACK"])
def test_a_bare_word_is_text_even_if_it_is_a_json_constant(word: str) -> None:
    assert TOOL.parse(TOOL.format("key", word)).arguments == (f'"{word}"',)


def test_parentheses_are_optional_without_arguments() -> None:
    for reply in ("<action>up()</action>", "<action> chop </action>", "<action>chop( )</action>"):
        assert TAG.parse(reply).arguments == ()
    assert TOOL.parse('<tool_call>{"name": "up"}</tool_call>') == ActionCall(name="up")


def test_arguments_may_be_json_within_json_in_any_order() -> None:
    said = '<tool_call>{"name": "tap", "arguments": "{\\"y\\": 1, \\"x\\": 0.5}"}</tool_call>'
    assert TOOL.parse(said) == ActionCall(name="tap", arguments=("0.5", "1"))


@pytest.mark.parametrize(
    ("calls", "inside", "message"),
    [
        (TAG, "down", "not an action"),
        (TAG, "taps(1, 2)", "did you mean 'tap'"),
        (TAG, "tap(1)", "takes 2 arguments"),
        (TAG, "chop(1)", "takes no arguments"),
        (TAG, 'say("a, b)', "unclosed quote"),
        (TAG, "__import__('os')(1)", "unknown action"),
        (TOOL, "tap(1, 2)", "not a JSON object"),
        (TOOL, "[" * 5000, "not a JSON object"),
        (TOOL, '["tap"]', "not a JSON object"),
        (TOOL, '{"name": "fly"}', "unknown action 'fly'"),
        (TOOL, '{"name": "tap", "arguments": {"x": 1}}', "takes the arguments"),
        (TOOL, '{"name": "tap", "arguments": {"x": 1, "y": true}}', "neither a number nor text"),
        (TOOL, '{"name": "tap", "arguments": {"x": 1, "y": [2]}}', "neither a number nor text"),
        (TOOL, '{"name": "tap", "arguments": "{"}', "takes the arguments"),
    ],
)
def test_an_invalid_action_is_an_error_with_its_reason(
    calls: ActionSet, inside: str, message: str
) -> None:
    tag = "action" if calls is TAG else "tool_call"
    with pytest.raises(ActionError, match=message):
        calls.parse(f"<{tag}>{inside}</{tag}>")


@given(st.text(max_size=200))
def test_any_text_is_an_action_or_an_action_error(text: str) -> None:
    for calls, tag in ((TAG, "action"), (TOOL, "tool_call")):
        try:
            call = calls.parse(f"<{tag}>{text}</{tag}>")
        except ActionError:
            continue
        assert call.name in calls.names


def test_a_megabyte_of_quotes_is_rejected_quickly() -> None:
    started = time.monotonic()
    with pytest.raises(ActionError):
        TAG.parse(f'<action>say({chr(34) + "," * 500_000}{chr(92)}")</action>')
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("forms", "style"), [((), "tag"), (("up", "up"), "tag"), (("up",), "tags")]
)
def test_an_empty_or_duplicate_set_or_unknown_style_is_a_config_error(
    forms: tuple[str, ...], style: str
) -> None:
    with pytest.raises(ConfigError):
        ActionSet(forms, style=style)
