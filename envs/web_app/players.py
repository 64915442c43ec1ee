"""Scripted player of web apps."""

from collections.abc import Sequence

from agentrl.actions.players.random_player import RandomPlayer
from agentrl.actions.screen_action_space import ScreenActionSpace


class WebAppRandom(RandomPlayer):
    """Touches and types at random.

    Args:
        actions: see `WebApp`.
        style: see `WebAppTranslator`.
        max_actions_per_reply: see `RandomPlayer`.
    """

    def __init__(
        self,
        actions: Sequence[str] | None = None,
        style: str = "tag",
        max_actions_per_reply: int = 1,
    ) -> None:
        space = ScreenActionSpace(actions)
        super().__init__(space, style=style, max_actions_per_reply=max_actions_per_reply)
