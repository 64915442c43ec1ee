"""2048 on a phone: its app, environment and translator."""

from agentrl.envs.android.minigames.game_2048.drawing import render
from agentrl.envs.android.minigames.game_2048.rules import MOVES, Game2048, Game2048Level
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.game_classes import game_classes

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
Game2048App, Game2048Env, Game2048Translator = game_classes("Game2048", GAME, __name__)
