"""A scripted player of your own: plays well, but sometimes touches a light that is off.

    agentrl check player player.py:Hasty env.id=environment.py:Lights-v0
    agentrl play environment.py:Lights-v0 --policy hasty env.players.hasty=player.py:Hasty

A player serves as a baseline in evaluations (`eval.baselines`) and provides demonstrations for the
warm start (`warm_start.player`). `env.dialect` replaces its attribute `dialect`, so that it writes
in the model's format.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.actions.dialect import Dialect
from agentrl.actions.dialects.tag import Tag
from agentrl.actions.screen_actions import Tap


class Hasty:
    """Touches the light that is on, except in careless turns.

    Args:
        carelessness: share of turns in which the player touches a random light.
    """

    def __init__(self, carelessness: float = 0.2) -> None:
        self.carelessness = carelessness
        self.dialect: Dialect = Tag()

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return the reply to a state.

        Args:
            info: the environment's info, with the true state.
            rng: the only source of randomness, so that equal seeds produce equal games.
        """
        lights = info["touch_targets"]["light"]
        if rng.random() < self.carelessness:
            chosen, thought = int(rng.integers(len(lights))), "I think it was this one."
        else:
            chosen = info["lit"]
            thought = f"Light {chosen + 1} is on."
        x, y = lights[chosen]
        width, height = info.get("screen_size", (720, 1280))  # for dialects that write pixels
        return self.dialect.spell(Tap(x, y), self.dialect.screen((width, height)), thought)
