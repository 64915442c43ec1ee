"""What of a Gymnasium observation a model is shown: pictures and words."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.errors import ConfigError
from agentrl.types import Image, Observation

_LEAST_SIDE = 16
"""Of a picture; a smaller array of bytes is a grid of cells, such as a board."""
_MOST_NUMBERS = 1000
"""An array of more tells a model nothing, and fills its context."""


def shown(observation: Any) -> Observation:
    """Pictures as they are, everything else as text; the parts of a dictionary by their names.

    Args:
        observation: a picture is uint8[H, W, 3], uint8[H, W, 1] or uint8[H, W] of at least 16
            rows and columns.

    Raises:
        ConfigError: an array that is no picture and too large to be told.
    """
    images: list[Image] = []
    text = _told(observation, images)
    return Observation(images=tuple(images), text=text)


def _told(value: Any, images: list[Image]) -> str:
    """The words for a value; its pictures are added to the list."""
    if isinstance(value, Mapping):
        parts = ((str(key), _told(part, images)) for key, part in value.items())
        return "\n".join(f"{key}: {words}" for key, words in parts if words)
    if isinstance(value, tuple | list):
        return ", ".join(words for part in value if (words := _told(part, images)))
    if isinstance(value, np.ndarray) and value.ndim:
        return _array(value, images)
    return str(value)


def _array(value: "np.ndarray[Any, Any]", images: list[Image]) -> str:
    if is_picture(value):
        images.append(in_colour(value))
        return ""
    if value.size > _MOST_NUMBERS:
        raise ConfigError(
            f"the environment shows {value.dtype}{list(value.shape)}; a picture is uint8[H, W, 3] "
            "or uint8[H, W]. Convert it in a wrapper (env.wrappers) or in a translator of your own."
        )
    if value.ndim == 1:
        return str(value)
    if value.ndim > 2:
        return "\n\n".join(_array(part, images) for part in value)
    return "\n".join(" ".join(map(str, row)) for row in value.tolist())


def pictures(observation: Any) -> list[Image]:
    """The pictures that `shown` shows, without a word of the rest, however much it is."""
    if isinstance(observation, Mapping):
        observation = list(observation.values())
    if isinstance(observation, tuple | list):
        return [picture for part in observation for picture in pictures(part)]
    if isinstance(observation, np.ndarray) and is_picture(observation):
        return [in_colour(observation)]
    return []


def is_picture(value: "np.ndarray[Any, Any]") -> bool:
    """Whether an array is a picture; a small grid of cells of one byte is not."""
    colours = value.ndim == 2 or (value.ndim == 3 and value.shape[2] in (1, 3))
    return colours and value.dtype == np.uint8 and min(value.shape[:2]) >= _LEAST_SIDE


def in_colour(picture: "np.ndarray[Any, Any]") -> Image:
    """uint8[H, W, 3] of a picture in colours or in grey."""
    if picture.ndim == 2:
        picture = picture[:, :, None]
    if picture.shape[2] == 1:
        picture = np.repeat(picture, 3, axis=2)
    return np.ascontiguousarray(picture, dtype=np.uint8)
