"""Flip on a phone: its app, environment and translator."""

from agentrl.envs.android.minigames.flip.drawing import render
from agentrl.envs.android.minigames.flip.rules import MISS, MOST, PAIR, Flip, FlipLevel
from agentrl.envs.android.phone_game.app import GameApp
from agentrl.envs.android.phone_game.env import Facts, GameEnv
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.translator import GameTranslator

GAME = PhoneGame(
    package="org.agentrl.flip",
    rules=Flip,
    draw=render,
    level=FlipLevel,
    calls={"flip(card)": MOST},
    prompt=(
        "You play a game of memory on a phone. A tap turns a card. Two equal ones stay; two that "
        "differ are turned back by your next tap on a card that lies face down. Find all pairs "
        "with few turns. Cards are counted from 0 in reading order."
    ),
    reward_fact="worth",
    metrics=("score", "success"),
)


class FlipApp(GameApp):
    """Flip as an app."""

    game = GAME


class FlipEnv(GameEnv):
    """Flip as an environment."""

    app = FlipApp

    def exit_reward(self, facts: Facts) -> float:
        """A miss for every two cards that may still be turned, and at least 1."""
        misses: int = facts["limit"] // 2 - facts["turned"] // 2
        return min(misses * MISS / PAIR, self.game.exit_reward)


class FlipTranslator(GameTranslator):
    """The prompt and the action parser of Flip."""

    game = GAME
