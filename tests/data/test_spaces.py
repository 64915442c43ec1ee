import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text
from hypothesis import given
from hypothesis import strategies as st

from agentrl.actions.action_spaces import speech_of
from agentrl.actions.tool_calls import STYLES
from agentrl.errors import ActionError, ConfigError

SPACES = {
    "discrete": (Discrete(3, start=-1), {"names": ["go left", "stay", "go right"]}),
    "numbered": (Discrete(40), {}),
    "multi": (MultiDiscrete([2, 3]), {"names": [["a", "b"], [1, 2, 3]], "parameters": ["x", "y"]}),
    "binary": (MultiBinary(3), {}),
    "box": (Box(np.float32([-1, 0]), np.float32([1, np.inf])), {"parameters": ["turn", "gas"]}),
    "whole": (Box(0, 255, (2,), np.uint8), {}),
    "text": (Text(12, charset="ab <>\"',()"), {}),
}


def actions(space: gymnasium.Space[Any], seed: int) -> Any:
    space.seed(seed)
    return space.sample()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", SPACES)
@given(seed=st.integers(0, 2**31 - 1))
def test_every_action_is_read_as_it_was_said(name: str, style: str, seed: int) -> None:
    space, settings = SPACES[name]
    speech, action = speech_of(space, style=style, **settings), actions(space, seed)
    if name == "text":
        action = action.strip() if style == "tag" else action
    if not space.contains(action) or "<action" in str(action) or "</action" in str(action):
        return
    read = speech.read(f"<think>so</think>{speech.say(action)}")
    assert space.contains(read)
    if name == "box":
        np.testing.assert_allclose(read, action, atol=6e-4)
    else:
        np.testing.assert_array_equal(read, action)
    assert speech.told().startswith("Answer")


@pytest.mark.parametrize(
    ("name", "said", "complaint"),
    [
        ("discrete", "left", "no action"),
        ("multi", "act(c, 1)", "one of a, b"),
        ("multi", "act(a)", "takes 2 arguments"),
        ("multi", r'act("\q", 1)', "no text in quotes"),
        ("multi", 'act("a"x, 1)', "no text in quotes"),
        ("multi", 'act("a\n", 1)', "no text in quotes"),
        ("box", "act(0.5, x)", "gas is 'x', no number"),
        ("box", "act(2, 1)", "it goes from -1 to 1"),
        ("box", "act(NaN, 1)", "no number"),
        ("box", "act(1e999, 1)", "no number"),
        ("box", "act(true, 1)", "no number"),
        ("whole", "act(0.5, 1)", "no whole number"),
        ("whole", f"act({'9' * 400}, 1)", "no whole number"),
        ("text", "xyz", "none of the texts"),
    ],
)
def test_what_is_no_action_says_why(name: str, said: str, complaint: str) -> None:
    space, settings = SPACES[name]
    with pytest.raises(ActionError, match=complaint):
        speech_of(space, **settings).read(f"<action>{said}</action>")


@pytest.mark.parametrize(
    ("space", "settings", "complaint"),
    [
        (Discrete(2), {"names": ["a"]}, "must be 2 names"),
        (Discrete(2), {"names": "ab"}, "must be a list"),
        (Discrete(2), {"names": ["a", " a"]}, "each once"),
        (Discrete(2), {"names": ["jump (high)", "duck"]}, "holds a bracket"),
        (MultiDiscrete([2]), {"names": [["a, b", "c"]]}, "holds a bracket"),
        (Discrete(2), {"parameters": ["x"]}, "has no parts"),
        (MultiDiscrete([2, 2]), {"names": [["a", "b"]]}, "must be 2 lists"),
        (MultiDiscrete([2, 2]), {"parameters": ["x", "x"]}, "each once"),
        (MultiDiscrete([2, 2]), {"parameters": ["x", "y z"]}, "plain"),
        (MultiDiscrete([[2, 2], [2, 2]]), {}, "one row"),
        (Box(0.0, 1.0, (2, 2)), {}, "one row"),
        (Box(0.0, 1.0, (2,)), {"names": ["a"]}, "no actions to name"),
        (Dict({"a": Discrete(2)}), {}, "write a translator"),
    ],
)
def test_what_does_not_fit_a_space_is_refused(space, settings, complaint) -> None:
    with pytest.raises(ConfigError, match=complaint):
        speech_of(space, **settings)


def test_a_tool_call_names_its_parts() -> None:
    space, settings = SPACES["multi"]
    said = speech_of(space, style="tool", **settings).say(np.array([1, 0]))
    call = json.loads(said.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert call == {"name": "act", "arguments": {"x": "b", "y": 1}}
