"""Check observations of any shape, and convert them to images and text."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agentrl.errors import ConfigError
from agentrl.types import Image, Observation

# Image layouts: height, width, channels, and number of images.
_AXES = ("hw", "hwc", "chw", "nhw", "hwn", "nhwc", "nchw")

# Minimum side of an image in pixels; a smaller byte array is a grid of cells, such as a board.
_LEAST_SIDE = 16
_ARRAYS = (np.ndarray, np.generic, list, tuple, bool, int, float)
_NUMBERED = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
# Maximum size of a symbolic grid; a larger array is probably an image in a different layout.
_MOST_CELLS = 4096
# Maximum size of an array to show as text, since more numbers would only fill the context.
_MOST_NUMBERS = 1000


def observation_problem(
    space: "gymnasium.Space[Any]", value: Any, where: str = "the observation"
) -> str | None:
    """Return why a value is not an observation of a space, or None if it is.

    Does not check bounds and alphabets (see `is_within`) or the sizes of images.
    """
    if isinstance(space, spaces.Dict) and isinstance(value, Mapping):
        lacking = [key for key in space.spaces if key not in value]
        if lacking:
            return f"{where} lacks {lacking[0]!r}"
        named = ((part, value[key], f"{where}[{key!r}]") for key, part in space.spaces.items())
        return next((p for one in named if (p := observation_problem(*one))), None)
    if isinstance(space, spaces.Tuple) and isinstance(value, tuple | list):
        if len(value) != len(space.spaces):
            return f"{where} has {len(value)} parts, not {len(space.spaces)}"
        parts = zip(space.spaces, value, strict=True)
        numbered = ((part, own, f"{where}[{at}]") for at, (part, own) in enumerate(parts))
        return next((p for one in numbered if (p := observation_problem(*one))), None)
    if isinstance(space, spaces.Box):
        return _array_problem(space, value, where)
    if isinstance(space, spaces.Text):
        fits = isinstance(value, str)
    elif isinstance(space, _NUMBERED):
        fits = space.contains(value)
    # Other kinds of spaces may have a slow `contains`.
    else:
        fits = value is not None or space.contains(value)
    return None if fits else f"{where} is {_brief(value)}, which is not in {space}"


def _array_problem(space: spaces.Box, value: Any, where: str) -> str | None:
    array = np.asarray(value) if isinstance(value, _ARRAYS) else np.array(value, dtype=object)
    if array.dtype.kind not in "biuf":
        return f"{where} is {_brief(value)}, not numbers"
    if array.shape != space.shape and not (array.size and is_image(array)):
        return f"{where} has the shape {array.shape}, not {space.shape}"
    if array.dtype.kind == "f" and np.isnan(array).any():
        return f"{where} contains NaN"
    return None


def is_within(space: "gymnasium.Space[Any]", value: Any) -> bool:
    """Return whether a space contains an observation; the bounds of large arrays aren't checked."""
    if isinstance(space, spaces.Dict):
        return all(is_within(part, value[key]) for key, part in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return all(map(is_within, space.spaces, value))
    if not isinstance(space, spaces.Box) or np.size(value) > _MOST_NUMBERS:
        return True
    array = np.asarray(value, dtype=space.dtype)
    return bool(np.all((array >= space.low) & (array <= space.high)))


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype}{list(value.shape)}"
    return f"{value!r:.60} ({type(value).__name__})"


def describe_observation(observation: Any) -> Observation:
    """Return images unchanged and everything else as text, with dictionary keys as labels.

    Args:
        observation: images are uint8[H, W, 3], uint8[H, W, 1] or uint8[H, W] with at least 16 rows
            and columns.

    Raises:
        ConfigError: an array is not an image and too large for text, or a value has no text form.
    """
    images: list[Image] = []
    text = _as_text(observation, images)
    return Observation(images=tuple(images), text=text)


def _as_text(value: Any, images: list[Image]) -> str:
    """Convert a value to text, appending its images to the list."""
    if isinstance(value, Mapping):
        parts = ((str(key), _as_text(part, images)) for key, part in value.items())
        return "\n".join(f"{key}: {text}" for key, text in parts if text)
    if isinstance(value, tuple | list):
        return ", ".join(text for part in value if (text := _as_text(part, images)))
    if isinstance(value, np.ndarray) and value.ndim:
        return _array(value, images)
    # Python's default text contains an address, which differs between runs.
    kind: Any = type(value)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        raise ConfigError(
            f"the observation contains a {kind.__name__}, which cannot be shown as text; convert "
            "it in a wrapper (env.wrappers) or in your own translator"
        )
    return str(value)


def _array(value: "np.ndarray[Any, Any]", images: list[Image]) -> str:
    if is_image(value):
        images.append(to_rgb(value))
        return ""
    if value.size > _MOST_NUMBERS:
        raise ConfigError(
            f"the observation is {value.dtype}{list(value.shape)}; an image is uint8[H, W, 3] or "
            "uint8[H, W]. Name its layout, such as env.translator_kwargs.image_layout=chw, or "
            "convert it in a wrapper (env.wrappers) or in your own translator."
        )
    if value.ndim == 1:
        return str(value)
    if value.ndim > 2:
        return "\n\n".join(_array(part, images) for part in value)
    return "\n".join(" ".join(map(str, row)) for row in value.tolist())


def images_in(observation: Any) -> list[Image]:
    """Return the images of an observation, ignoring all other arrays."""
    if isinstance(observation, Mapping):
        observation = list(observation.values())
    if isinstance(observation, tuple | list):
        return [image for part in observation for image in images_in(part)]
    if isinstance(observation, np.ndarray) and is_image(observation):
        return [to_rgb(observation)]
    return []


def is_image(value: "np.ndarray[Any, Any]") -> bool:
    """Return whether an array is an image rather than a small grid of bytes."""
    has_channels = value.ndim == 2 or (value.ndim == 3 and value.shape[2] in (1, 3))
    return has_channels and value.dtype == np.uint8 and min(value.shape[:2]) >= _LEAST_SIDE


def to_rgb(image: "np.ndarray[Any, Any]") -> Image:
    """Convert a color or grayscale image to uint8[H, W, 3]."""
    if image.ndim == 2:
        image = image[:, :, None]
    if image.shape[2] == 1:
        image = np.repeat(image, 3, axis=2)
    return np.ascontiguousarray(image, dtype=np.uint8)


class ImageLayout:
    """Layout of images in an environment's arrays, if it is not uint8[H, W, 3].

    Args:
        axes: order of height, width, channels and, for several images, their number, such as `chw`
            or `nhwc`.
        limits: values of black and of full brightness; None means [0, 255], or [0, 1] for floats.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(self, axes: str, limits: Sequence[float] | None = None) -> None:
        if axes not in _AXES:
            raise ConfigError(
                f"env.translator_kwargs.image_layout={axes!r}: must be one of {', '.join(_AXES)}"
            )
        if limits is not None and (len(limits) != 2 or not limits[0] < limits[1]):
            raise ConfigError(
                f"env.translator_kwargs.image_range={limits}: must be two ascending numbers"
            )
        self._axes, self._limits = axes, limits

    def standard(self, observation: Any) -> Any:
        """Convert the images in an observation, at any depth, to tuples of uint8[H, W, 3]."""
        if isinstance(observation, Mapping):
            return {key: self.standard(part) for key, part in observation.items()}
        if isinstance(observation, tuple | list):
            return tuple(map(self.standard, observation))
        is_array = isinstance(observation, np.ndarray) and observation.dtype.kind in "uif"
        return self._images(observation) if is_array else observation

    def _images(self, array: "np.ndarray[Any, Any]") -> Any:
        """Return the images in an array, or the array itself if it has none."""
        if array.ndim != len(self._axes):
            return array
        images = array.transpose([self._axes.index(axis) for axis in "nhwc" if axis in self._axes])
        if "n" not in self._axes:
            images = images[None]
        if "c" not in self._axes:
            images = images[..., None]
        if images.shape[3] not in (1, 3) or min(images.shape[1:3]) < _LEAST_SIDE:
            return array
        return tuple(map(to_rgb, self._as_bytes(images)))

    def _as_bytes(self, images: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
        usual = (0.0, 1.0) if images.dtype.kind == "f" else (0.0, 255.0)
        low, high = usual if self._limits is None else self._limits
        least, most = float(images.min()), float(images.max())
        if not low <= least <= most <= high:
            raise ConfigError(
                f"the observation's images have values from {least:g} to {most:g}, outside {low:g} "
                f"to {high:g}; set env.translator_kwargs.image_range"
            )
        if images.dtype == np.uint8 and (low, high) == (0.0, 255.0):
            return images
        scaled: np.ndarray[Any, Any] = np.rint((images - low) * (255.0 / (high - low)))
        return scaled.astype(np.uint8)


def is_symbolic_grid(space: "gymnasium.Space[Any]") -> bool:
    """Return whether observations of a space are boards of integers that stand for objects."""
    if not isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return False
    shape, dtype = space.shape, np.dtype(space.dtype)
    if len(shape) not in (2, 3) or min(shape[:2]) < 2 or dtype.kind not in "iub":
        return False
    # An image in channel-first layout is not a board.
    is_picture = min(shape[-2:]) >= _LEAST_SIDE and shape[0] in (1, 3)
    is_large = math.prod(shape) > _MOST_CELLS
    return not (is_picture or is_large or is_image(np.broadcast_to(dtype.type(0), shape)))


def has_symbolic_grid(space: "gymnasium.Space[Any]") -> bool:
    """Return whether an observation is or contains a symbolic grid."""
    if isinstance(space, spaces.Dict):
        return any(map(has_symbolic_grid, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return any(map(has_symbolic_grid, space.spaces))
    return is_symbolic_grid(space)


def without_grids(space: "gymnasium.Space[Any]", observation: Any) -> Any:
    """Remove symbolic grids from an observation; if it is a grid, return an empty tuple."""
    if isinstance(space, spaces.Dict):
        return {key: without_grids(part, observation[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map(without_grids, space.spaces, observation))
    return () if is_symbolic_grid(space) else observation
