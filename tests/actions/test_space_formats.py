import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Text, Tuple
from hypothesis import given
from hypothesis import strategies as st

from agentrl.actions.action_calls import STYLES
from agentrl.actions.players.random_player import RandomPlayer
from agentrl.actions.space_formats import action_format_for
from agentrl.errors import ActionError, ConfigError

SPACES = {
    "discrete": (Discrete(3, start=-1), {"names": ["go left", "stay", "go right"]}),
    "numbered": (Discrete(40), {}),
    "multi": (MultiDiscrete([2, 3]), {"names": [["a", "b"], [1, 2, 3]], "parameters": ["x", "y"]}),
    "numbered from below 0": (Discrete(3, start=-1), {}),
    "numbered from 1": (MultiDiscrete([2, 3], start=[1, -1]), {}),
    "binary": (MultiBinary(3), {}),
    "box": (Box(np.float32([-1, 0]), np.float32([1, np.inf])), {"parameters": ["turn", "gas"]}),
    "whole": (Box(0, 255, (2,), np.uint8), {}),
    "text": (Text(12, charset="ab <>\"',()"), {}),
    "huge": (Discrete(2**62), {}),
    "huge choices": (MultiDiscrete([2**62, 2]), {}),
    "dict": (
        Dict({
            "move": Discrete(2, start=5), "turn": Discrete(3, start=-1), "say": Text(9),
            "aim": Box(-1, 1, (2, 2)), "keys": MultiBinary(3), "gas": Box(0, 1, ()),
            "none": Box(0, 1, (0, 2)),
            "more": Dict({"a b": Tuple([Discrete(2), MultiDiscrete([2, 3], start=[1, 0])])}),
        }),
        {"names": {"move": ["left", "right"], "more": {"a b": [["no", "yes"], None]}}},
    ),
    "tuple": (Tuple([Discrete(3), Box(0, 9, (1,), np.int64)]), {"parameters": ["go", "far"]}),
}  # fmt: skip


def actions(space: gymnasium.Space[Any], seed: int) -> Any:
    space.seed(seed)
    return space.sample()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", SPACES)
@given(seed=st.integers(0, 2**31 - 1))
def test_every_written_action_is_parsed_back(name: str, style: str, seed: int) -> None:
    space, settings = SPACES[name]
    action_format, action = action_format_for(space, style=style, **settings), actions(space, seed)
    if name == "text":
        action = action.strip() if style == "tag" else action
    if not space.contains(action) or "<action" in str(action) or "</action" in str(action):
        return
    read = action_format.parse(f"<think>so</think>{action_format.format(action)}")
    assert space.contains(read)
    if name in ("dict", "tuple"):
        assert action_format.format(read) == action_format.format(action)
    elif name == "box":
        np.testing.assert_allclose(read, action, atol=6e-4)
    else:
        np.testing.assert_array_equal(read, action)
    assert action_format.describe().startswith("Answer")


@pytest.mark.parametrize(
    ("name", "call", "message"),
    [
        ("discrete", "left", "not an action"),
        ("multi", "act(c, 1)", "one of a, b"),
        ("multi", "act(a)", "takes 2 arguments"),
        ("multi", r'act("\q", 1)', "not a valid quoted string"),
        ("multi", 'act("a"x, 1)', "not a valid quoted string"),
        ("multi", 'act("a\n", 1)', "not a valid quoted string"),
        ("box", "act(0.5, x)", "gas is 'x', not a number"),
        ("box", "act(2, 1)", "it must be from -1 to 1"),
        ("box", "act(NaN, 1)", "not a number"),
        ("box", "act(1e999, 1)", "not a number"),
        ("box", "act(true, 1)", "not a number"),
        ("whole", "act(0.5, 1)", "not a whole number"),
        ("whole", f"act({'9' * 400}, 1)", "not a whole number"),
        ("text", "a@b", "the text 'a@b' contains '@'; allowed characters are"),
        ("text", "a" * 13, "has 13 characters; it must have 1 to 12"),
        ("huge", f"{2**62}", f"the actions are the numbers from 0 to {2**62 - 1}"),
        ("huge", "01", "the actions are the numbers"),
        ("numbered from below 0", "2", "the actions are the numbers from -1 to 1"),
        ("numbered from 1", "act(0, 0)", "a0 is '0'; it must be one of 1 to 2"),
        ("huge choices", f"act({2**62}, 1)", f"a0 is .* must be one of 0 to {2**62 - 1}"),
        ("tuple", "act(1, 2)", "is not a JSON object"),
        ("tuple", '{"go": 1}', "the action requires far"),
        ("tuple", '{"go": 3, "far": [1]}', "go is '3'; it must be one of 0 to 2"),
        ("tuple", '{"go": true, "far": [1]}', "go is 'true'; it must be one of"),
        ("tuple", '{"go": 1, "far": [1.5]}', r"far\[0\] is '1.5', not a whole number"),
        ("tuple", '{"go": 1, "far": 1}', "far: '1' is not a list of length 1"),
        ("tuple", '{"go": 1, "far": [NaN]}', "not a whole number"),
        ("dict", '{"move": "up"}', "the action requires aim"),
    ],
)
def test_an_invalid_action_is_an_error_with_its_reason(name: str, call: str, message: str) -> None:
    space, settings = SPACES[name]
    with pytest.raises(ActionError, match=message):
        action_format_for(space, **settings).parse(f"<action>{call}</action>")


@pytest.mark.parametrize(
    ("space", "settings", "message"),
    [
        (Discrete(2), {"names": ["a"]}, "must be a list of 2 unique names"),
        (Discrete(2), {"names": "ab"}, "must be a list"),
        (Discrete(2), {"names": ["a", " a"]}, "unique"),
        (Discrete(2), {"names": ["jump (high)", "duck"]}, "contains a bracket"),
        (MultiDiscrete([2]), {"names": [["a, b", "c"]]}, "contains a bracket"),
        (Discrete(2), {"parameters": ["x"]}, "has no components"),
        (Dict({0: Discrete(2)}), {}, "JSON keys must be strings"),
        (MultiDiscrete([2, 2]), {"names": [["a", "b"]]}, "must be 2 lists"),
        (MultiDiscrete([2, 2]), {"parameters": ["x", "x"]}, "unique"),
        (MultiDiscrete([2, 2]), {"parameters": ["x", "y z"]}, "identifiers"),
        (MultiDiscrete([[2, 2], [2, 2]]), {}, "not one-dimensional"),
        (Box(0.0, 1.0, (2, 2)), {}, "not one-dimensional"),
        (Box(0.0, 1.0, (2,)), {"names": ["a"]}, "no discrete actions to name"),
        (Dict({"a": Discrete(2)}), {"names": {"b": ["x", "y"]}}, "must have the keys a"),
        (
            Dict({"a": Discrete(2)}),
            {"names": {"a": ["x"]}},
            "names.a must be a list of 2 unique names",
        ),
        (Dict({"a": Box(0, 1)}), {"names": {"a": ["x"]}}, "has no choices to name"),
        (Dict({"a": Discrete(2)}), {"parameters": ["x"]}, "have names"),
        (Tuple([Discrete(2)]), {"names": [None, ["x", "y"]]}, "each of the 1 components"),
        (Tuple([Sequence(Discrete(2))]), {}, "'a0' of the action space, Sequence.*a translator"),
        (Sequence(Discrete(2)), {}, "write a translator"),
    ],
)
def test_settings_that_do_not_fit_a_space_are_config_errors(space, settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        action_format_for(space, **settings)


def test_a_tool_call_names_its_parameters() -> None:
    space, settings = SPACES["multi"]
    said = action_format_for(space, style="tool", **settings).format(np.array([1, 0]))
    call = json.loads(said.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert call == {"name": "act", "arguments": {"x": "b", "y": 1}}


def test_a_structured_action_is_plain_json_in_either_style() -> None:
    space, settings = SPACES["dict"]
    action = space.sample() | {"move": 6, "say": "</action>", "gas": np.float32(0.5)}
    for style in STYLES:
        said = action_format_for(space, style=style, **settings).format(action)
        call = json.loads(said.removeprefix(f"<{said[1:].partition('>')[0]}>").rpartition("</")[0])
        given = call["arguments"] if style == "tool" else call
        assert (given["move"], given["say"], given["gas"]) == ("right", "</action>", 0.5)
    described = action_format_for(space, **settings).describe()
    assert "move one of left, right" in described
    assert "aim a list of 2 x 2 numbers from -1 to 1" in described
    assert "turn one of -1 to 1" in described


def test_a_random_player_plays_spaces_of_any_size_and_depth() -> None:
    for name in ("huge", "huge choices", "dict", "tuple"):
        space, settings = SPACES[name]
        said = RandomPlayer(space, **settings).reply({}, np.random.default_rng(1))
        assert space.contains(action_format_for(space, **settings).parse(said))


@pytest.mark.parametrize(
    ("space", "reply", "action"),
    [
        (Discrete(3, start=1), "1", 1),
        (MultiDiscrete([3], start=[1]), "act(1)", [1]),
        (Dict({"a": Discrete(3, start=1)}), '{"a": 1}', {"a": 1}),
    ],
)
def test_numbers_are_those_of_the_environment(
    space: gymnasium.Space[Any], reply: str, action: Any
) -> None:
    assert action_format_for(space).parse(f"<action>{reply}</action>") == action
