"""The space of screen actions, and its text formats."""

from typing import Any

import numpy as np
import pytest

from agentrl.actions.default_translator import SpaceTranslator
from agentrl.actions.dialect import open_dialect
from agentrl.actions.screen_action_space import ScreenActionSpace
from agentrl.actions.screen_actions import Done, Key, LongPress, Swipe, Tap, Type, Wait
from agentrl.actions.space_formats import action_format_for
from agentrl.errors import ActionError, InvalidArgument

ALL = (
    Tap(0.25, 0.5), LongPress(0.0, 1.0), Swipe(0.5, 0.75, 0.5, 0.25), Type('say "hi"\n'),
    Key("BACK"), Wait(0.5), Done(),
)  # fmt: skip


@pytest.mark.parametrize("style", ["tag", "tool"])
@pytest.mark.parametrize("action", ALL, ids=lambda action: type(action).__name__)
def test_each_action_is_in_the_space_and_is_read_as_it_was_written(style: str, action: Any) -> None:
    space = ScreenActionSpace()
    assert space.contains(action)
    written = action_format_for(space, style=style)
    assert written.parse(written.format(action)) == action


def test_samples_are_actions_and_depend_on_the_seed() -> None:
    spaces = [ScreenActionSpace(seed=seed) for seed in (1, 1, 2)]
    first, same, other = ([space.sample() for _ in range(200)] for space in spaces)
    assert first == same != other
    assert all(spaces[0].contains(action) for action in first)
    assert {type(action).__name__ for action in first} == {
        "Tap", "LongPress", "Swipe", "Drag", "Type", "Key"
    }  # fmt: skip


@pytest.mark.parametrize(
    "action",
    [
        Tap(1.1, 0.5),
        Tap(float("nan"), 0.5),
        Type("\0"),
        Key("POWER"),
        Wait(1e9),
        Wait(None),
        Tap("a", 0),
        (0.5, 0.5),
        None,
    ],
)
def test_invalid_actions_are_not_in_the_space(action: Any) -> None:
    assert not ScreenActionSpace().contains(action)


def test_a_space_may_accept_few_actions() -> None:
    space = ScreenActionSpace(["type", "tap"])
    assert space.types == (Tap, Type)
    assert space == ScreenActionSpace(("tap", "type")) != ScreenActionSpace()
    assert not space.contains(Key("BACK"))
    form = action_format_for(space)
    assert "tap(x, y)" in form.describe()
    assert "swipe" not in form.describe()
    with pytest.raises(ActionError, match="the actions are tap, type"):
        form.parse("<action>key(BACK)</action>")
    with pytest.raises(InvalidArgument, match="must be a list of tap"):
        ScreenActionSpace(["fly"])
    assert {type(ScreenActionSpace(["wait", "done"]).sample()) for _ in range(20)} <= {Wait, Done}


def test_dialects_write_and_read_its_actions() -> None:
    translator = SpaceTranslator(ScreenActionSpace(), instructions="Do it.")
    translator.dialect = open_dialect("ui_tars")
    translator.see([np.zeros((1280, 720, 3), np.uint8)])
    for action in (Tap(0.25, 0.5), Type("words"), Key("BACK")):
        read = translator.to_action(translator.to_reply(action))
        assert type(read) is type(action)
    assert translator.to_action(translator.to_reply(Type("words"))) == Type("words")


def test_what_a_dialect_can_say_but_the_space_refuses_is_an_error_of_the_reply() -> None:
    translator = SpaceTranslator(ScreenActionSpace())
    translator.dialect = open_dialect("gui_owl")
    translator.see([np.zeros((1280, 720, 3), np.uint8)])
    with pytest.raises(ActionError, match="a pause lasts from 0 to 5 s"):
        translator.to_action(translator.spell(Wait(30.0)))
