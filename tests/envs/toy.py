"""A small phone game with taps, swipes and time, for testing the framework of phone games.

A mark is in one of four columns; touches move it, and ticks are counted.
"""

from dataclasses import dataclass

import numpy as np

from agentrl.envs.android.phone_game import paint
from agentrl.envs.android.phone_game.boxes import Box, Grid, SwipePath
from agentrl.envs.android.phone_game.env import GameEnv
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.game_app import GameApp
from agentrl.envs.android.phone_game.level_settings import PacedSettings, one_of
from agentrl.envs.android.phone_game.players import GamePlayer, RandomGamePlayer
from agentrl.envs.android.phone_game.rules import GameRules
from agentrl.envs.android.phone_game.translator import GameTranslator

COLUMNS = 4
GRID = Grid(columns=COLUMNS, rows=7)
CELLS = tuple(GRID.cell(column, 3) for column in range(COLUMNS))
DOOR = GRID.cell(0, 5)
WORK = GRID.cell(2, 5)


@dataclass(slots=True, kw_only=True, frozen=True)
class Level(PacedSettings):
    goal: int = one_of(20, range(1, 1000), "a score")


class Toy(GameRules):
    def __init__(self, seed, **level):
        self.seed, self.level = seed, Level(**level)
        self.at, self.score, self.ticks, self.work = seed % COLUMNS, 0, 0, 0
        self.closed = None

    def touch(self, x, y):
        if DOOR.contains(x, y):
            self.closed = "the door was touched"
            return True
        if WORK.contains(x, y):
            self.work = 3
            return True
        for column, box in enumerate(CELLS):
            if box.contains(x, y):
                self.score += 1
                changed, self.at = self.at != column, column
                return changed
        return False

    def swipe(self, x1, y1, x2, y2):
        self.at = max(0, self.at - 1) if x2 < x1 else min(COLUMNS - 1, self.at + 1)
        self.score += 10
        return True

    @property
    def tick_ms(self):
        return 20

    def tick(self):
        self.ticks += 1
        self.work = max(0, self.work - 1)
        return True

    def touch_targets(self):
        left = SwipePath(0.8, 0.5, 0.2, 0.5)
        return {"go": CELLS, "left": left, "leave": DOOR, "work": WORK}

    def state(self):
        state = {"at": self.at, "score": self.score, "ticks": self.ticks, "busy": self.work > 0}
        done = self.score >= self.level.goal
        return {**state, "done": done, **({"closed": self.closed} if self.closed else {})}


def draw(toy, width, height):
    picture = np.full((height, width, 3), 240, np.uint8)
    paint.rounded(picture, CELLS[toy.at], (200, 40, 40), 0.02)
    bar = Box(0.0, 0.0, (toy.ticks % 100 + 1) / 101, 0.1)
    paint.rounded(picture, bar, (40, 40, 200), 0.0)
    return picture


GAME = PhoneGame(
    package="org.agentrl.toy",
    rules=Toy,
    draw=draw,
    level=Level,
    calls={"go(column)": COLUMNS, "left": 1, "leave()": 1, "work()": 1},
    swipes=True,
    prompt="Move the mark.",
    reward_scale=0.5,
    exit_reward=-3.0,
    metrics=("score", "ticks"),
)


class ToyApp(GameApp):
    game = GAME


class ToyEnv(GameEnv):
    app = ToyApp


class ToyWords(GameTranslator):
    game = GAME


class Walker(GamePlayer):
    game = GAME

    def choose(self, info, rng):
        return ("left", None) if info["at"] else ("go", 3)

    def think(self, info, choice):
        return choice[0]


class Stumbler(RandomGamePlayer):
    game = GAME
