"""A scripted player of your own: plays well, but sometimes touches a light that is off.

    agentrl check player player.py:Hasty env.id=environment.py:Lights-v0
    agentrl play environment.py:Lights-v0 --policy hasty env.players.hasty=player.py:Hasty

It serves as a baseline of evaluations (`eval.baselines`) and gives demonstrations for the warm
start (`warm_start.player`). `env.dialect` replaces its attribute `dialect`, so that it writes in
the model's format.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.actions.dialect import Dialect
from agentrl.actions.dialects.tag import Tag
from agentrl.actions.screen_actions import Tap


class Hasty:
    """Touches the light that is on; in a fifth of the turns it does not look.

    Args:
        carelessness: share of the turns in which it touches any light.
    """

    def __init__(self, carelessness: float = 0.2) -> None:
        self.carelessness = carelessness
        self.dialect: Dialect = Tag()

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """The reply to a state.

        Args:
            info: the environment's info, with the true state.
            rng: the only source of randomness, so that equal seeds give equal games.
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
