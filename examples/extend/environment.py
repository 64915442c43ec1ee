"""An environment of your own: a game on a phone, with its translator and a scripted player.

    agentrl check env environment.py:Lights-v0
    agentrl play environment.py:Lights-v0 --policy expert

A phone game consists of rules and a drawing; see docs/extending/phone_game.md. Any `gymnasium.Env`
is an environment too, with or without a translator.
"""

import numpy as np

import agentrl
from agentrl.envs.android.phone_game import paint
from agentrl.envs.android.phone_game.boxes import Grid
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.game_classes import game_classes
from agentrl.envs.android.phone_game.players import GamePlayer
from agentrl.envs.android.phone_game.rules import GameRules

LIGHTS = [Grid(columns=3, rows=5).cell(column, 2) for column in range(3)]
ROUNDS = 3


class Lights(GameRules):
    """Touch the light that is on, three times."""

    def __init__(self, seed):
        self.seed, self.turn, self.score = seed, 0, 0

    def touch(self, x, y):
        for light, box in enumerate(LIGHTS):
            if box.contains(x, y):
                self.score += int(light == self.lit)
                self.turn += 1
                return True
        return False

    @property
    def lit(self):
        return int(np.random.default_rng((self.seed, self.turn, 1)).integers(3))

    def touch_targets(self):
        return {"light": LIGHTS}

    def state(self):
        return {
            "turn": self.turn,
            "lit": self.lit,
            "score": self.score,
            "done": self.turn == ROUNDS,
        }


def draw(lights, width, height):
    """Draw the screen, uint8[H, W, 3]."""
    picture = np.full((height, width, 3), 240, np.uint8)
    # Every touch must change the screen. The same light may be on again, so a bar grows.
    picture[: height // 40, : width * lights.turn // ROUNDS] = (38, 99, 235)
    for light, box in enumerate(LIGHTS):
        paint.disc(picture, box, (22, 190, 76) if light == lights.lit else (196, 202, 212), 0.1)
    return picture


GAME = PhoneGame(
    package="org.example.lights",
    rules=Lights,
    draw=draw,
    calls={"light(i)": 3},
    prompt="Touch the light that is on.",
)
LightsApp, LightsEnv, LightsTranslator = game_classes("Lights", GAME, __name__)


class Expert(GamePlayer):
    """Touches the light that is on."""

    game = GAME

    def choose(self, info, rng):
        return "light", info["lit"]


agentrl.register(
    "Lights-v0",
    "environment:LightsEnv",
    translator="environment:LightsTranslator",
    players={"expert": "environment:Expert"},
    app="environment:LightsApp",
)
