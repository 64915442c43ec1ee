"""The words of the tree game."""

from agentrl.envs.phone_game.translator import GameTranslator
from agentrl.envs.tree_game.app import GAME


class TreeGameTranslator(GameTranslator):
    """Shows the screen and nothing else; reads one tap, or `chop()`, `replace()`, `decompose()`.

    Args and errors: as `GameTranslator`, and the settings of `agentrl.envs.tree_game.rules.Level`.
    """

    game = GAME
