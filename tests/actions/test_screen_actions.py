from typing import get_args

from agentrl.actions.screen_actions import EXAMPLES, ScreenAction


def test_checks_of_dialects_have_an_example_of_every_action() -> None:
    assert {type(action) for action in EXAMPLES} == set(get_args(ScreenAction))
