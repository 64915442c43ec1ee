"""Space fighter on a phone: its app, environment and translator."""

from agentrl.envs.android.minigames.space_fighter.drawing import render
from agentrl.envs.android.minigames.space_fighter.rules import (
    MOVES,
    SpaceFighter,
    SpaceFighterLevel,
)
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.game_classes import game_classes

GAME = PhoneGame(
    package="org.agentrl.spacefighter",
    rules=SpaceFighter,
    draw=render,
    level=SpaceFighterLevel,
    calls=dict.fromkeys(MOVES, 1),
    swipes=True,
    prompt=(
        "You play a space fighter on a phone. A tap on a column, or a drag to it, sends your blue "
        "ship there, one column at a time; it fires by itself. Shoot red enemies; gray rocks "
        "cannot be shot. Keep clear of everything that comes down: you have few lives."
    ),
    reward_fact="worth",
    exit_reward=lambda facts: -float(facts["lives"]),  # one hit for each remaining life
    metrics=("score", "lives", "success"),
)
SpaceFighterApp, SpaceFighterEnv, SpaceFighterTranslator = game_classes(
    "SpaceFighter", GAME, __name__
)
