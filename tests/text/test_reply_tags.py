import time

import pytest

from agentrl.errors import ActionError
from agentrl.text.reply_tags import action_tag_content


def test_the_only_action_is_found() -> None:
    assert action_tag_content("<think>so</think><action>tap(0.1, 0.2)</action>") == "tap(0.1, 0.2)"


@pytest.mark.parametrize(
    "reply",
    ["", "<action>", "</action>a<action>", "<action>a</action><action>b</action>", "<action>a"],
)
def test_anything_else_is_an_action_error(reply: str) -> None:
    with pytest.raises(ActionError, match="exactly one"):
        action_tag_content(reply)


def test_a_megabyte_of_tags_is_rejected_quickly() -> None:
    started = time.monotonic()
    with pytest.raises(ActionError):
        action_tag_content("<action>" * 125_000)
    assert time.monotonic() - started < 1
