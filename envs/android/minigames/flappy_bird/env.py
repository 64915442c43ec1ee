"""Flappy Bird on a phone: its app, environment and translator."""

from agentrl.envs.android.minigames.flappy_bird.drawing import render
from agentrl.envs.android.minigames.flappy_bird.rules import FlappyBird, FlappyBirdLevel
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.game_classes import game_classes

GAME = PhoneGame(
    package="org.agentrl.flappybird",
    rules=FlappyBird,
    draw=render,
    level=FlappyBirdLevel,
    calls={"flap": 1, "wait": 1},
    prompt=(
        "You play Flappy Bird on a phone. A tap below the score board makes the bird flap and "
        "rise, else it falls; a tap on the score board only lets time pass. Fly through the gaps "
        "between the green posts, and touch neither them nor the ground nor the ceiling."
    ),
    reward_fact="worth",
    metrics=("score", "success"),
)
FlappyBirdApp, FlappyBirdEnv, FlappyBirdTranslator = game_classes("FlappyBird", GAME, __name__)
