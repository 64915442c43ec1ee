"""What a person types as an action."""

import numpy as np
import pytest

from agentrl import config as configuration
from agentrl.actions.action_calls import ActionSet
from agentrl.actions.human_input_parser import available_gestures, parse_typed, strip_tags
from agentrl.errors import ActionError
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.resolved_env import resolve_env


@pytest.mark.parametrize("dialect", ["ui-tars-1.5", "qwen3-vl-mobile-use", "tool"])
def test_a_person_types_touches_as_always(dialect: str) -> None:
    env = configuration.load("number_game", [f"env.dialect={dialect}"]).env
    translator = open_translator(resolve_env(env))
    reply = parse_typed(translator, "tap(0.25, 0.50)")
    np.testing.assert_allclose(translator.to_action(reply), [0.25, 0.5], atol=0.001)
    assert available_gestures(translator) == ["tap"]
    with pytest.raises(ActionError):
        parse_typed(translator, "fly")


def test_call_formats_are_shown_without_tags() -> None:
    for style in ("tag", "tool"):
        shown = strip_tags(f"Answer {ActionSet(['tap(x, y)', 'wait()'], style).describe()}.")
        assert shown == (
            "Answer tap(x, y), wait()." if style == "tag" else "Answer tap(x, y), wait."
        )
