"""The six small games, each with a level of few turns."""

from collections.abc import Mapping
from typing import Any

from agentrl import plugins
from agentrl.env import game

SHORT: Mapping[str, Mapping[str, Any]] = {
    "Game2048-v0": {"goal": 32},
    "Timberman-v0": {"goal": 8},
    "Snake-v0": {"goal": 2},
    "Flip-v0": {"pairs": 3},
    "FlappyBird-v0": {"goal": 2},
    "SpaceFighter-v0": {"length": 8},
}


def new_app(id: str) -> Any:
    """The app of a game, not launched."""
    return plugins.load(str(game(id).app))()


def player(id: str, name: str, **kwargs: Any) -> Any:
    """A scripted player of a game."""
    return plugins.load(game(id).players[name])(**kwargs)


def extras(id: str, seed: int) -> dict[str, str]:
    """What launches a short game."""
    return {"seed": str(seed), **{name: str(value) for name, value in SHORT[id].items()}}
