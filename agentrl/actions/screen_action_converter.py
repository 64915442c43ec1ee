"""Conversion between screen actions and the actions of Gymnasium spaces."""

from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from agentrl.actions.screen_action_space import ScreenActionSpace
from agentrl.actions.screen_actions import AnswerUser, Drag, ScreenAction, Swipe, Tap, Type
from agentrl.actions.space_values import read_text
from agentrl.errors import ConfigError


class ScreenActionConverter:
    """Converts between a dialect's actions and the actions of a Gymnasium space.

    A `Box` of shape (2,) accepts taps: x and y, scaled to its bounds. A `Box` of shape (4,) accepts
    swipes, from start to end; a tap is a swipe that ends where it starts. A `Box` of whole numbers
    contains pixels. A `Text` accepts typed text and answers. A `ScreenActionSpace` contains the
    screen actions themselves.
    """

    def __init__(self, space: "gymnasium.Space[Any]") -> None:
        self._space = space
        if isinstance(space, ScreenActionSpace):
            self.accepts: tuple[type[Any], ...] = space.types
            return
        bounded = isinstance(space, spaces.Box) and space.is_bounded()
        if not isinstance(space, spaces.Text) and not (bounded and space.shape in ((2,), (4,))):
            raise ConfigError(
                f"env.dialect does not support the action space {space}; it needs a bounded Box of "
                "2 numbers (x, y) or 4 (both ends of a swipe), a Text space, or a ScreenActionSpace"
            )
        swipes = space.shape == (4,)
        self.accepts = (Tap, Swipe) if swipes else (Tap,)
        if isinstance(space, spaces.Text):
            self.accepts = (Type, AnswerUser)

    def to_space(self, action: ScreenAction) -> Any:
        """Convert a screen action of a type in `accepts` to an action of the space."""
        space = self._space
        if isinstance(space, ScreenActionSpace):
            space.check(action)
            return action
        if isinstance(space, spaces.Text):
            assert isinstance(action, Type | AnswerUser), f"{action} is not text"
            return read_text(action.text, space)
        assert isinstance(space, spaces.Box), f"{space} has no touches"
        low, extent = self._extent(space)
        positions = np.array(touch_values(action, int(space.shape[0])))
        values = low + positions * extent
        # Round down to the pixel that contains the position; clip position 1, beyond the last
        # pixel.
        if np.issubdtype(space.dtype, np.integer):
            values = np.floor(values)
        return np.clip(values, space.low, space.high).astype(space.dtype)

    def from_space(self, action: Any) -> ScreenAction:
        """Convert an action of the space to a screen action; touches hit the middle of a pixel."""
        space = self._space
        if isinstance(space, ScreenActionSpace):
            assert space.contains(action), f"{action} is not in {space}"
            return cast(ScreenAction, action)
        if isinstance(space, spaces.Text):
            return Type(str(action))
        assert isinstance(space, spaces.Box), f"{space} has no touches"
        low, extent = self._extent(space)
        # Touch the middle, because a touch between two pixels could be rounded to either.
        middle = 0.5 if np.issubdtype(space.dtype, np.integer) else 0.0
        positions = (np.asarray(action, dtype=np.float64) - low + middle) / extent
        return touch_of(np.clip(positions, 0.0, 1.0))

    def _extent(self, space: spaces.Box) -> tuple[Any, Any]:
        """Return the lower bounds and the distances to the upper bounds."""
        low = space.low.astype(np.float64)
        # Pixels 0 to 99 are 100 pixels wide.
        pixels = 1.0 if np.issubdtype(space.dtype, np.integer) else 0.0
        return low, space.high.astype(np.float64) - low + pixels


def touch_values(action: ScreenAction, count: int) -> list[float]:
    """Return a touch as 2 or 4 numbers of a `Box`; with 4, a tap ends where it starts."""
    if isinstance(action, Tap):
        return [action.x, action.y] * (count // 2)
    assert isinstance(action, Swipe | Drag), f"{action} is not a touch"
    return [action.x1, action.y1, action.x2, action.y2]


def touch_of(values: Any) -> Tap | Swipe:
    """Invert `touch_values`: two numbers or equal ends are a tap, anything else is a swipe."""
    x, y, *end = map(float, values)
    return Swipe(x, y, *end) if end and end != [x, y] else Tap(x, y)
