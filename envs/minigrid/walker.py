"""A scripted player of empty MiniGrid rooms that sees only their image."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from agentrl.actions.space_formats import action_format_for
from agentrl.types import Image

_LEFT, _RIGHT, _FORWARD = 0, 1, 2
_AHEAD = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""The next square to the right or below, by the agent's direction."""


class Walker:
    """Takes the shortest path to the green goal of an empty room, using the image of the room.

    Args:
        action_space: the environment's action space; filled in automatically.
        names: names of the actions; this and the other arguments must match the translator's.
        parameters: parameters of the components.
        style: `tag` or `tool`.
    """

    def __init__(
        self,
        action_space: gymnasium.Space[Any],
        names: Any = None,
        parameters: Sequence[str] | None = None,
        style: str = "tag",
    ) -> None:
        self._action_format = action_format_for(action_space, names, parameters, style)

    def reply(
        self, info: Mapping[str, Any], rng: np.random.Generator, observation: Mapping[str, Any]
    ) -> str:
        """Go forward if that leads closer to the goal, else turn towards it.

        Args:
            info: unused.
            rng: unused.
            observation: observation of `RGBImgObsWrapper`: the `image` of the whole room, and the
                agent's `direction`.
        """
        picture, facing = observation["image"], int(observation["direction"])
        away = _center(picture, 1) - _center(picture, 0)  # the goal is green, the agent is red
        closer = [np.dot(away, ahead) > picture.shape[0] / 20 for ahead in _AHEAD]
        if closer[facing]:
            return self._action_format.format(_FORWARD)
        return self._action_format.format(_RIGHT if closer[(facing + 1) % 4] else _LEFT)


def _center(picture: Image, channel: int) -> np.ndarray:
    """Return the mean position (x, y), in pixels, of pixels with only this color channel."""
    rest = np.delete(picture, channel, axis=2).max(axis=2)
    rows, columns = np.nonzero((picture[..., channel] > 150) & (rest < 100))
    return np.array([columns.mean(), rows.mean()])
