"""Several actions in one reply."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from agentrl.actions.action_calls import STYLES
from agentrl.actions.action_chunks import join_actions, parse_actions, read_actions
from agentrl.actions.default_translator import SpaceTranslator
from agentrl.actions.dialect import open_dialect
from agentrl.actions.screen_actions import Swipe, Tap, Type
from agentrl.check.support.random_episodes import equal_values
from agentrl.errors import ActionError

NAMES = ["left", "down", "right", "up"]
LAKE = SpaceTranslator(spaces.Discrete(4), names=NAMES)
SPACES = (
    spaces.Discrete(4, start=-1),
    spaces.MultiDiscrete([2, 3]),
    spaces.Box(-1, 1, (2,), np.float32),
    spaces.Text(8, charset="ab<>/ction"),
    spaces.Dict({"move": spaces.Discrete(3), "force": spaces.Box(0, 1, (), np.float32)}),
)


def moves(*names: str) -> str:
    return "".join(f"<action>{name}</action>" for name in names)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
@given(count=st.integers(1, 5), seed=st.integers(0, 2**31))
def test_written_actions_are_parsed_back_in_order(
    style: str, space: "spaces.Space[Any]", count: int, seed: int
) -> None:
    translator = SpaceTranslator(space, style=style)
    space.seed(seed)
    # The tag style writes text as it is, so a text with the closing tag was never possible.
    actions = [
        action for action in (space.sample() for _ in range(count)) if "<" not in str(action)
    ]
    actions = [translator.to_action(translator.to_reply(action)) for action in actions]
    replies = [translator.to_reply(action, "so" * (not n)) for n, action in enumerate(actions)]
    if actions:
        found = read_actions(translator, "\n".join(replies), 5)
        assert equal_values(found, actions)
        assert equal_values(read_actions(translator, join_actions(replies) + "\n", 5), actions)


@pytest.mark.parametrize("name", ["tag", "tool", "qwen3-vl-mobile-use", "gui-owl", "mai-ui"])
def test_dialects_that_tag_their_actions_write_several(name: str) -> None:
    box = spaces.Box(0, 1, (4,), np.float32)
    translator = SpaceTranslator(box)
    dialect = open_dialect(name)
    translator.dialect = dialect
    screen = dialect.screen((1080, 2400))
    written = (Tap(0.25, 0.5), Swipe(0.5, 0.8, 0.5, 0.2), Tap(0.75, 0.25))
    reply = "\n".join(dialect.spell(one, screen, f"step {n}") for n, one in enumerate(written))
    found = read_actions(translator, reply, 3)
    expected = [[0.25, 0.5, 0.25, 0.5], [0.5, 0.8, 0.5, 0.2], [0.75, 0.25, 0.75, 0.25]]
    np.testing.assert_allclose(found, expected, atol=0.01)
    assert Type not in translator.dialect.says or "tool_call" in reply or name == "tag"


def test_too_many_actions_are_rejected_as_a_whole() -> None:
    parsed = parse_actions(LAKE, moves("up", "up", "up", "up"), 3)
    assert parsed.actions == ()
    assert parsed.error == (
        "4 actions in the reply; at most 3 are allowed (env.max_actions_per_reply)"
    )


@pytest.mark.parametrize(
    ("reply", "actions", "said"),
    [
        (moves("up", "fly", "left"), (3,), "action 2 of 3: 'fly' is not an action"),
        (moves("up", "left")[:-3], (3,), "action 2 of 2: no complete <action>"),
        (moves("up") + "<action><action>left</action>", (3,), "action 2 of 2: "),
        (moves("fly", "up"), (), "action 1 of 2: 'fly' is not an action"),
        (moves("fly"), (), "'fly' is not an action"),
        ("up", (), "no complete <action>"),
        ("", (), "no complete <action>"),
    ],
)
def test_actions_before_an_invalid_one_are_kept(
    reply: str, actions: tuple[int, ...], said: str
) -> None:
    parsed = parse_actions(LAKE, reply, 3)
    assert parsed.actions == actions
    assert parsed.error is not None
    assert parsed.error.startswith(said)
    with pytest.raises(ActionError, match=said[:12]):
        read_actions(LAKE, reply, 3)


def test_with_one_action_per_reply_a_second_is_what_it_always_was() -> None:
    with pytest.raises(ActionError) as alone:
        LAKE.to_action(moves("up", "left"))
    assert parse_actions(LAKE, moves("up", "left"), 1).error == str(alone.value)
    assert read_actions(LAKE, moves("up"), 1) == [3]
