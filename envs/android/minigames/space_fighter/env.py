"""Space fighter on a phone: its app, environment and translator."""

from agentrl.envs.android.minigames.space_fighter.drawing import render
from agentrl.envs.android.minigames.space_fighter.rules import (
    MOVES,
    SpaceFighter,
    SpaceFighterLevel,
)
from agentrl.envs.android.phone_game.app import GameApp
from agentrl.envs.android.phone_game.env import Facts, GameEnv
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.translator import GameTranslator

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
    metrics=("score", "lives", "success"),
)


class SpaceFighterApp(GameApp):
    """Space fighter as an app."""

    game = GAME


class SpaceFighterEnv(GameEnv):
    """Space fighter as an environment."""

    app = SpaceFighterApp

    def exit_reward(self, facts: Facts) -> float:
        """One hit for each remaining life."""
        return -float(facts["lives"])


class SpaceFighterTranslator(GameTranslator):
    """The prompt and the action parser of Space fighter."""

    game = GAME
