"""Touches and texts of a dialect as actions of Gymnasium spaces."""

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from agentrl.actions.default_translator import SpaceTranslator
from agentrl.actions.dialect import open_dialect
from agentrl.actions.screen_action_converter import ScreenActionConverter
from agentrl.actions.screen_actions import AnswerUser, Drag, LongPress, Swipe, Tap, Type
from agentrl.errors import ActionError, ConfigError

PIXELS = spaces.Box(np.array([0, 0]), np.array([499, 299]), dtype=np.int64)
UNIT = spaces.Box(-1.0, 1.0, (4,), np.float32)


@given(st.integers(0, 499), st.integers(0, 299))
def test_a_pixel_survives(x: int, y: int) -> None:
    space = ScreenActionConverter(PIXELS)
    assert space.to_space(space.from_space([x, y])).tolist() == [x, y]


def test_the_edges_of_the_screen_are_the_bounds() -> None:
    assert ScreenActionConverter(PIXELS).to_space(Tap(1.0, 0.0)).tolist() == [499, 0]
    assert ScreenActionConverter(UNIT).to_space(Swipe(0.0, 0.5, 1.0, 1.0)).tolist() == [-1, 0, 1, 1]


def test_a_tap_is_a_swipe_that_ends_where_it_starts() -> None:
    space = ScreenActionConverter(UNIT)
    assert space.to_space(Tap(0.75, 0.5)).tolist() == [0.5, 0.0, 0.5, 0.0]
    assert space.from_space([0.5, 0.0, 0.5, 0.0]) == Tap(0.75, 0.5)
    assert space.to_space(Drag(0.0, 0.0, 1.0, 1.0)).tolist() == [-1, -1, 1, 1]


def test_a_text_must_be_one_of_the_space() -> None:
    space = ScreenActionConverter(spaces.Text(5, charset="ab"))
    assert space.to_space(Type("ab")) == space.to_space(AnswerUser("ab")) == "ab"
    with pytest.raises(ActionError, match="'abc' contains 'c'; allowed characters are 'ab'"):
        space.to_space(Type("abc"))


@pytest.mark.parametrize(
    "space", [spaces.Discrete(3), spaces.Box(0, 1, (3,)), spaces.Box(-np.inf, np.inf, (2,))]
)
def test_other_spaces_are_a_mistake(space: spaces.Space) -> None:
    with pytest.raises(ConfigError, match="does not support the action space"):
        ScreenActionConverter(space)


def test_a_text_environment_speaks_a_dialect() -> None:
    translator = SpaceTranslator(spaces.Text(20), instructions="Say a word.")
    translator.dialect = open_dialect("qwen3-vl-mobile-use")
    prompt = translator.instructions()
    assert "`answer`" in prompt
    assert "`click`" not in prompt
    assert translator.to_action(translator.to_reply("hello", "A word.")) == "hello"
    with pytest.raises(ActionError, match="tap is not possible here"):
        translator.to_action(translator.spell(Tap(0.5, 0.5)))
    with pytest.raises(ActionError, match=r"long_press is not possible .* are answer_user, type"):
        translator.to_action(translator.spell(LongPress(0.5, 0.5)))
