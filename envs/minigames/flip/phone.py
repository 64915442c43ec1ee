"""Flip on a phone: its app, environment, translator and players."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.envs.frame.app import GameApp
from agentrl.envs.frame.env import GameEnv
from agentrl.envs.frame.game import PhoneGame
from agentrl.envs.frame.players import Choice, RandomPlayer
from agentrl.envs.frame.translator import GameTranslator
from agentrl.envs.minigames.flip.drawing import render
from agentrl.envs.minigames.flip.player import best
from agentrl.envs.minigames.flip.rules import MOST, Flip, Level
from agentrl.envs.minigames.players import Skilled

GAME = PhoneGame(
    package="org.agentrl.flip",
    rules=Flip,
    draw=render,
    level=Level,
    calls={"flip(card)": MOST},
    words=(
        "You play a game of memory on a phone. A tap turns a card. Two equal ones stay; two that "
        "differ are turned back by your next tap on a card that lies face down. Find all pairs "
        "with few turns. Cards are counted from 0 in reading order."
    ),
    score="worth",
    metrics=("score", "won"),
)


class FlipApp(GameApp):
    """Flip as an app."""

    game = GAME


class FlipEnv(GameEnv):
    """Flip as an environment."""

    app = FlipApp


class FlipTranslator(GameTranslator):
    """The words of Flip."""

    game = GAME


class Expert(Skilled):
    """Plays as well as can be seen."""

    game = GAME

    def best(self, info: Mapping[str, Any]) -> Choice:
        """The best call that it knows."""
        return "flip", best(info)


class Mediocre(Expert):
    """Turns any card that lies face down in half of its turns."""

    def __init__(self, skill: float = 0.5, mode: str = "touch", style: str = "tag") -> None:
        super().__init__(skill, mode, style)

    def other(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """A card that lies face down."""
        return "flip", int(rng.choice(info["moves"]))


class Random(RandomPlayer):
    """Turns any card of the table, and touches anywhere now and then."""

    game = GAME

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """Any card."""
        return "flip", int(rng.integers(len(info["faces"])))
