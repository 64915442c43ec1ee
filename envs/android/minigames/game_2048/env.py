"""2048 on a phone: its app, environment and translator."""

from agentrl.envs.android.minigames.game_2048.drawing import render
from agentrl.envs.android.minigames.game_2048.rules import MOVES, Game2048, Game2048Level
from agentrl.envs.android.phone_game.app import GameApp
from agentrl.envs.android.phone_game.env import GameEnv
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.translator import GameTranslator

GAME = PhoneGame(
    package="org.agentrl.game2048",
    rules=Game2048,
    draw=render,
    level=Game2048Level,
    calls=dict.fromkeys(MOVES, 1),
    swipes=True,
    prompt=(
        "You play 2048 on a phone. A swipe slides all tiles of the board to one side; two equal "
        "tiles that meet become one of their sum. When nothing can slide any more, the game is "
        "lost; make the largest tile you can."
    ),
    reward_fact="worth",
    metrics=("score", "largest", "success"),
)


class Game2048App(GameApp):
    """2048 as an app."""

    game = GAME


class Game2048Env(GameEnv):
    """2048 as an environment."""

    app = Game2048App


class Game2048Translator(GameTranslator):
    """The prompt and the action parser of 2048."""

    game = GAME
