from typing import Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.actions.screen_action_syntax import ACTION_FORMS, FORMS, KEYS, MAX_TEXT, MAX_WAIT_S
from agentrl.devices import (
    Action,
    ActionSyntax,
    Done,
    Drag,
    Key,
    LongPress,
    Swipe,
    Tap,
    Type,
    Wait,
)
from agentrl.devices.input.input_commands import to_pixel
from agentrl.errors import ActionError, ConfigError

Spelling = Literal["unit", "thousand", "pixels", "tool"]
WIDTH, HEIGHT = 1080, 2400
SYNTAXES: dict[Spelling, ActionSyntax] = {
    "unit": ActionSyntax(),
    "thousand": ActionSyntax(positions="thousand"),
    "pixels": ActionSyntax(positions="pixels", size=(WIDTH, HEIGHT)),
    "tool": ActionSyntax(style="tool"),
}


def actions(x: st.SearchStrategy[float], y: st.SearchStrategy[float]) -> st.SearchStrategy[Action]:
    letters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
    return st.one_of(
        st.builds(Tap, x, y),
        st.builds(LongPress, x, y),
        st.builds(Swipe, x, y, x, y),
        st.builds(Drag, x, y, x, y),
        st.builds(Type, st.text(letters, max_size=20)),
        st.builds(Key, st.sampled_from(KEYS)),
        st.builds(Wait, st.integers(0, int(MAX_WAIT_S * 100)).map(lambda n: n / 100)),
        st.builds(Done),
    )


def spelled(positions: Spelling) -> st.SearchStrategy[Action]:
    """Actions whose positions that spelling can say."""
    if positions == "pixels":
        x = st.integers(0, WIDTH - 1).map(lambda n: (n + 0.5) / WIDTH)
        return actions(x, st.integers(0, HEIGHT - 1).map(lambda n: (n + 0.5) / HEIGHT))
    steps = {"unit": 100, "thousand": 1000, "tool": 100}[positions]
    position = st.integers(0, steps).map(lambda n: n / steps)
    return actions(position, position)


@given(st.one_of(*(st.tuples(st.just(SYNTAXES[name]), spelled(name)) for name in SYNTAXES)))
def test_every_action_survives_format_and_parse(said: tuple[ActionSyntax, Action]) -> None:
    syntax, action = said
    assert syntax.parse(f"I think.\n{syntax.format(action)}") == action


@given(st.text(max_size=60), st.sampled_from(sorted(FORMS)))
def test_a_reply_is_an_action_or_an_action_error(reply: str, name: str) -> None:
    for syntax in (*SYNTAXES.values(), ActionSyntax(outside="clamp")):
        for text in (reply, f"<action>{reply}</action>", f"<action>{name}({reply})</action>"):
            try:
                action = syntax.parse(text)
            except ActionError:
                continue
            assert syntax.parse(syntax.format(action)) is not None


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        ("tap(0.5, 0.5)", "no complete"),
        ("<action>tap(0.5, 0.5)</action> <action>tap(0.1, 0.1)</action>", "2 complete"),
        ("<action>tap(0.5, 0.5)", "no complete"),
        ("<action>tap(1.2, 0.5)</action>", r"1\.2 is outside the screen; numbers are from 0 to 1"),
        ("<action>tap(-0.1, 0.5)</action>", "'-0.1' is not a number"),
        ("<action>tap(nan, 0.5)</action>", "'nan' is not a number"),
        ("<action>tap(NaN, 1e999)</action>", "'NaN' is not a number"),
        ("<action>tap(1e-1, 0.5)</action>", "'1e-1' is not a number"),
        ("<action>tap(\u0660, 0.5)</action>", "is not a number"),
        ("<action>tap(0.5)</action>", "takes 2 arguments, not 1"),
        ("<action>drag(0.5, 0.5)</action>", "takes 4 arguments, not 2"),
        ("<action>tab(0.5, 0.5)</action>", "did you mean 'tap'"),
        ("<action>shell(reboot)</action>", "unknown action 'shell'"),
        ("<action>key(POWER)</action>", "keys are BACK"),
        ("<action>key(BACK; reboot)</action>", "unknown key"),
        ("<action>wait(1000)</action>", "from 0 to 5"),
        ("<action>wait(0.1, 0.1)</action>", "takes 1 argument, not 2"),
        ("<action>done(0.1)</action>", "takes no arguments"),
        ("<action>type(hello)</action>", "one JSON string"),
        ("<action>type('hello')</action>", "one JSON string"),
        ('<action>type("a", "b")</action>', "takes 1 argument, not 2"),
        ('<action>type("a\nb")</action>', "one JSON string"),
        ('<action>type(["a"])</action>', "one JSON string"),
        (f"<action>type({'[' * 100_000})</action>", "one JSON string"),
        ('<action>type("\\u0000")</action>', "NUL"),
        ('<action>type("\\ud800")</action>', "lone surrogate"),
        (f'<action>type("{"x" * (MAX_TEXT + 1)}")</action>', "at most 500 characters"),
        ("<action>go left</action>", "the actions are tap"),
    ],
)
def test_invalid_actions_say_why(reply: str, complaint: str) -> None:
    with pytest.raises(ActionError, match=complaint):
        ActionSyntax().parse(reply)


def test_every_action_of_devices_has_a_form() -> None:
    assert set(ACTION_FORMS) == set(get_args(Action))


def test_the_default_format_has_not_changed() -> None:
    assert ActionSyntax().format(Tap(0.21, 0.7)) == "<action>tap(0.21, 0.70)</action>"
    assert ActionSyntax().format(Swipe(0.5, 0.8, 0.5, 0.2)) == (
        "<action>swipe(0.50, 0.80, 0.50, 0.20)</action>"
    )
    assert ActionSyntax().format(Wait(0.5)) == "<action>wait(0.50)</action>"
    assert ActionSyntax().format(Key("BACK")) == "<action>key(BACK)</action>"


def test_a_text_may_contain_the_closing_tag() -> None:
    said = ActionSyntax().format(Type('a</action> "b"\\\n<action>'))
    assert said == '<action>type("a\\u003c/action> \\"b\\"\\\\\\n\\u003caction>")</action>'
    assert ActionSyntax().parse(said) == Type('a</action> "b"\\\n<action>')


@pytest.mark.parametrize(
    ("positions", "said", "where"),
    [("unit", "1.7, 0.5", (1, 0.5)), ("thousand", "-30, 1200", (0, 1)), ("unit", "-1, 0", (0, 0))],
)
def test_clamp_moves_outside_positions_to_the_edge(
    positions: Spelling, said: str, where: tuple[float, float]
) -> None:
    syntax = ActionSyntax(positions=positions, outside="clamp")
    assert syntax.parse(f"<action>tap({said})</action>") == Tap(*where)
    with pytest.raises(ActionError, match=r"outside the screen|not a number"):
        ActionSyntax(positions=positions).parse(f"<action>tap({said})</action>")


@given(st.integers(0, WIDTH - 1), st.integers(0, HEIGHT - 1))
def test_pixel_positions_round_trip_on_a_screen_of_that_size(x: int, y: int) -> None:
    action = SYNTAXES["pixels"].parse(f"<action>tap({x}, {y})</action>")
    assert isinstance(action, Tap)
    assert (to_pixel(action.x, WIDTH), to_pixel(action.y, HEIGHT)) == (str(x), str(y))


def test_a_pixel_beyond_the_image_is_outside() -> None:
    with pytest.raises(ActionError, match=r"1080 is outside the screen; numbers are from 0 to 107"):
        SYNTAXES["pixels"].parse("<action>tap(1080, 3)</action>")


def test_a_grammar_accepts_only_its_actions_and_keys() -> None:
    syntax = ActionSyntax(actions=("tap", "key"), keys=("HOME",))
    assert syntax.parse("<action>key(home)</action>") == Key("HOME")
    for refused in ('type("x")', "key(BACK)", "done()"):
        with pytest.raises(ActionError):
            syntax.parse(f"<action>{refused}</action>")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"positions": "thousands"}, "did you mean 'thousand'"),
        ({"positions": "pixels"}, "needs the image's size"),
        ({"positions": "pixels", "size": (0, 5)}, "needs the image's size"),
        ({"outside": "ignore"}, "refuse, clamp"),
        ({"actions": ("tab",)}, "did you mean 'tap'"),
    ],
)
def test_an_invalid_grammar_is_a_config_error(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        ActionSyntax(**settings)  # type: ignore[arg-type]
