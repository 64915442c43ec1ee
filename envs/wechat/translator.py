"""The words of the tree game."""

from agentrl.envs.frame.translator import GameTranslator
from agentrl.envs.wechat.app import GAME


class TreeGameTranslator(GameTranslator):
    """Shows the screen and nothing else; reads one tap, or `chop()`, `replace()`, `decompose()`.

    Args and errors: as `GameTranslator`, and the settings of `agentrl.envs.wechat.rules.Level`.
    """

    game = GAME
