"""Snake on a phone: its app, environment and translator."""

from agentrl.envs.android.minigames.snake.drawing import render
from agentrl.envs.android.minigames.snake.rules import MOVES, Snake, SnakeLevel
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.game_classes import game_classes

GAME = PhoneGame(
    package="org.agentrl.snake",
    rules=Snake,
    draw=render,
    level=SnakeLevel,
    calls=dict.fromkeys(MOVES, 1),
    swipes=True,
    prompt=(
        "You play Snake on a phone. A swipe turns the dark head of the snake, which moves by one "
        "cell at a time. Eat the red food; the wall and your own body end the game."
    ),
    reward_fact="worth",
    metrics=("score", "success"),
)
SnakeApp, SnakeEnv, SnakeTranslator = game_classes("Snake", GAME, __name__)
