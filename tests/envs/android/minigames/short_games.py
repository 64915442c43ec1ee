"""Short levels of the six minigames, and helpers to play them."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl import user_code
from agentrl.env_registry import find_env
from agentrl.envs.android.phone_game.level_settings import PacedSettings

SHORT: Mapping[str, Mapping[str, Any]] = {
    "Game2048-v0": {"goal": 32},
    "Timberman-v0": {"goal": 8},
    "Snake-v0": {"goal": 2},
    "Flip-v0": {"pairs": 3},
    "FlappyBird-v0": {"goal": 2},
    "SpaceFighter-v0": {"length": 8},
}


def new_app(id: str) -> Any:
    """Return the app of a game, not yet launched."""
    return user_code.load(str(find_env(id).app))()


def player(id: str, name: str, **kwargs: Any) -> Any:
    """Return a scripted player of a game."""
    return user_code.load(find_env(id).players[name])(**kwargs)


def extras(id: str, seed: int) -> dict[str, str]:
    """Return the launch extras of a short game."""
    return {"seed": str(seed), **{name: str(value) for name, value in SHORT[id].items()}}


def play_badly(id: str, seed: int, dice: int, **level: str) -> list[dict[str, Any]]:
    """Return the states of a paused game in which each move has the lowest immediate worth."""
    app, rng = new_app(id), np.random.default_rng(dice)
    app.launch({**extras(id, seed), **level})
    states = [app.state()]
    while not states[-1]["done"]:
        tried = [after(app, move) for move in states[-1]["moves"]]
        least = min(candidate.state()["worth"] for candidate in tried)
        worst = [candidate for candidate in tried if candidate.state()["worth"] == least]
        app = worst[int(rng.integers(len(worst)))]
        states.append(app.state())
    return states


def after(app: Any, move: str | int) -> Any:
    """Return a copy of the app after a move and the time that it takes."""
    app = copy.deepcopy(app)
    app.rules.flip(move) if isinstance(move, int) else app.rules.move(move)
    for _ in range(app.level.ticks if isinstance(app.level, PacedSettings) else 0):
        app.rules.tick()
    return app
