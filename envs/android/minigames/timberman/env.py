"""Timberman on a phone: its app, environment and translator."""

from agentrl.envs.android.minigames.timberman.drawing import render
from agentrl.envs.android.minigames.timberman.rules import MOVES, Timberman, TimbermanLevel
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.game_classes import game_classes

GAME = PhoneGame(
    package="org.agentrl.timberman",
    rules=Timberman,
    draw=render,
    level=TimbermanLevel,
    calls=dict.fromkeys(MOVES, 1),
    prompt=(
        "You play Timberman on a phone. A tap on the left or the right half chops the tree from "
        "that side: its lowest piece goes, and all above comes down by one. A branch on your side, "
        "at your height or come down to it, ends the game, and so does the bar when it is empty."
    ),
    reward_fact="worth",
    metrics=("score", "success"),
)
TimbermanApp, TimbermanEnv, TimbermanTranslator = game_classes("Timberman", GAME, __name__)
