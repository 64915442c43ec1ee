"""The interface of action dialects: how models are prompted for actions and how they write them.

A dialect combines the system prompt, action schema, parser, coordinates, the history that its
models expect, and the stop strings that end a reply. Each dialect is a module in
`agentrl.actions.dialects` or a user's own subclass of `Dialect`, and is selected by `env.dialect`.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agentrl.actions.reply_values import OUTSIDE
from agentrl.actions.screen_actions import ScreenAction, Tap
from agentrl.errors import ActionError, ConfigError, boundary, describe_error
from agentrl.extension_points import DIALECT
from agentrl.text.formatting import quoted

Size = tuple[int, int]
"""Width and height in pixels."""
ActionTypes = Collection[type[Any]]
"""Types of actions, from `agentrl.actions.screen_actions`."""
Resize = Callable[[Size], Size]
"""Function from the size of a screen to the size of the image that the model sees."""
SCREENS: tuple[Size, ...] = ((720, 1280), (1080, 2400), (1440, 3120), (2400, 1080), (1600, 2560))
"""Screen sizes of phones, one of them in landscape, and a tablet."""
# Coordinates of the taps used by the check.
_GRID = (1.0, 0.0, 0.999, 0.001, 0.25, 1 / 3, 0.5, 0.737)
# Maximum error of a position in [0, 1], because the coarsest dialects write hundredths.
_TOLERANCE = 0.01


@dataclass(slots=True, kw_only=True, frozen=True)
class Screen:
    """The screen that actions are written for."""

    size: Size
    """Size of the screen in device pixels."""
    seen: Size
    """Size of the image that the model sees, after the model's own resize."""


class Dialect(ABC):
    """How models of one family are prompted for an action on a screen, and how they write it.

    A subclass sets `says` and implements `parse` and `spell`; the default prompts show only the
    screen. Parsing never executes anything: a reply becomes an action of a type in `says`, or an
    ActionError.

    Args:
        outside: `refuse` rejects a position outside the screen, `clamp` moves it to the edge.

    Raises:
        ConfigError: `outside` has a different value.
    """

    says: ClassVar[tuple[type[Any], ...]]
    """Types of actions the dialect can express, from `agentrl.actions.screen_actions`."""
    history: ClassVar[str] = "concat"
    """History that the dialect's models expect, in the form of `env.history`, which overrides
    it."""
    stop: ClassVar[tuple[str, ...]] = ()
    """Stop strings that end a reply, such as `</tool_call>`. For local models, only those that are
    a single token take effect; for servers, all do."""
    action_tag: ClassVar[str | None] = None
    """The tag around an action, such as `tool_call`, if a reply may contain several actions one
    after another (`env.max_actions_per_reply`); None if it may not."""

    def __init__(self, outside: str = "refuse") -> None:
        if outside not in OUTSIDE:
            raise ConfigError(
                f"env.dialect_kwargs.outside must be one of {', '.join(OUTSIDE)}, got {outside!r}"
            )
        self.clamp = outside == "clamp"
        self.resize: Resize = lambda size: size
        """The model's own resize; set when the dialect is opened for a model."""

    def screen(self, size: Size) -> Screen:
        """Return a screen of the given size, with the size that the model sees."""
        return Screen(size=size, seen=self.resize(size))

    def served_size(self, size: Size) -> Size:
        """Return the size to which a server of the dialect's model resizes images."""
        return size

    @abstractmethod
    def parse(self, reply: str, screen: Screen) -> ScreenAction:
        """Parse the action in a reply, with positions in [0, 1] of the screen.

        Raises:
            ActionError: the reply does not contain exactly one valid action.
        """

    @abstractmethod
    def spell(self, action: ScreenAction, screen: Screen, thought: str = "") -> str:
        """Write the reply that performs an action; the inverse of `parse`.

        Args:
            action: action of a type in `says`.
            screen: screen the action is performed on.
            thought: reasoning before the action; may be empty.

        Raises:
            ActionError: the dialect cannot express this action.
        """

    def system(self, task: str, screen: Screen, accepts: ActionTypes) -> str:
        """Write the system message; may be empty.

        Args:
            task: the task's description.
            screen: screen at the start of the episode.
            accepts: types of actions that the environment accepts and the message should describe.
        """
        return task

    def opening(
        self, task: str, screen: Screen, accepts: ActionTypes, steps: Sequence[str], shown: str
    ) -> str:
        """Write the text of a prompt's first message.

        Args:
            task: the task's description.
            screen: screen that the message shows.
            accepts: types of actions that the environment accepts.
            steps: all earlier replies of the episode.
            shown: the environment's observation as text, with `<image>` for each image.
        """
        return shown

    def following(self, shown: str) -> str:
        """Write the text of a later message in a prompt."""
        return shown


def type_name(kind: type[Any]) -> str:
    """Return the name of an action type for messages: `double_tap`."""
    return re.sub("(?<=.)(?=[A-Z])", "_", kind.__name__).lower()


def type_names(types: ActionTypes) -> str:
    """List the names of action types for messages: `long_press, tap`."""
    return ", ".join(sorted(map(type_name, types)))


def open_dialect(name: str, kwargs: Mapping[str, Any] | None = None) -> Dialect:
    """Open a dialect by name.

    Args:
        name: name as in `env.dialect`.
        kwargs: arguments for the dialect's class.

    Raises:
        ConfigError: the dialect does not exist, rejects the arguments, or puts positions outside
            the screen.
    """
    cls = DIALECT.resolve(name)
    given = dict(kwargs or {})
    with boundary(ConfigError, f"the dialect {name} rejects env.dialect_kwargs={given}"):
        dialect: Dialect = cls(**given)
    # A wrong scale would train the model to miss, so detect it before any phone is touched.
    try:
        for size in SCREENS:
            check_positions(dialect, dialect.screen(size))
    except AssertionError as error:
        raise ConfigError(f"env.dialect={name}: {error}") from error
    return dialect


def check_positions(dialect: Dialect, screen: Screen) -> None:
    """Check that taps all over a screen are written and parsed as the same position.

    Raises:
        AssertionError: a tap is parsed as a different position, or as one outside the screen.
    """
    if Tap not in dialect.says:
        return
    width, height = screen.size
    for x, y in (*zip(_GRID, _GRID, strict=True), *zip(_GRID, reversed(_GRID), strict=True)):
        where = f"on a screen of {width}x{height}, a tap at ({x:.3g}, {y:.3g})"
        try:
            reply = dialect.spell(Tap(x, y), screen)
            parsed = dialect.parse(reply, screen)
        except ActionError as error:
            raise AssertionError(f"{where} cannot be written: {error}") from error
        except Exception as error:
            raise AssertionError(f"{where} fails: {describe_error(error)}") from error
        written = f"is written as {quoted(reply, 200)} and parsed as"
        assert isinstance(parsed, Tap), f"{where} {written} {parsed}"
        where += f" {written} ({parsed.x:.4g}, {parsed.y:.4g})"
        on_screen = 0 <= parsed.x <= 1 and 0 <= parsed.y <= 1
        assert on_screen, f"{where}, which is outside the screen; positions are in [0, 1]"
        close = abs(parsed.x - x) <= _TOLERANCE and abs(parsed.y - y) <= _TOLERANCE
        assert close, f"{where}, which is a different position"


def smart_resize(size: Size, side: int, min_pixels: int, max_pixels: int) -> Size:
    """Return the size to which Qwen's image processors resize an image.

    Equivalent to `qwen_vl_utils.smart_resize`. The two sides are rounded separately, so the aspect
    ratio changes slightly.

    Args:
        size: width and height of the image.
        side: side of a token in pixels: 28 for Qwen2-VL and Qwen2.5-VL, 32 for Qwen3-VL.
        min_pixels: smallest area.
        max_pixels: largest area.
    """
    width, height = size
    columns, rows = (max(side, round(edge / side) * side) for edge in size)
    if columns * rows > max_pixels:
        shrink = math.sqrt(width * height / max_pixels)
        columns, rows = (max(side, math.floor(edge / shrink / side) * side) for edge in size)
    elif columns * rows < min_pixels:
        grow = math.sqrt(min_pixels / (width * height))
        columns, rows = (math.ceil(edge * grow / side) * side for edge in size)
    return columns, rows
