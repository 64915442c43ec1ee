"""Scripted players, which reply like a model."""

import inspect
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np


class Player(Protocol):
    """A scripted player, which replies like a model, but knows the true state.

    A player of screen environments may have an attribute `dialect`, which `env.dialect` replaces.
    """

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Reply to the state described by `info`.

        A player that needs more than `info` takes a third argument, `observation`: the
        environment's original observation, before translation.
        """


def takes_observation(player: Player) -> bool:
    """Return whether a player needs the observation to reply.

    If it has no attribute `takes_observation`, its `reply` has a parameter `observation`.
    """
    if (declared := getattr(player, "takes_observation", None)) is not None:
        return bool(declared)
    return "observation" in inspect.signature(player.reply).parameters


def scripted_reply(
    player: Player, observation: Any, info: Mapping[str, Any], rng: np.random.Generator
) -> str:
    """Return a player's reply, passing the observation if the player accepts it."""
    more = {"observation": observation} if takes_observation(player) else {}
    return player.reply(info, rng, **more)
