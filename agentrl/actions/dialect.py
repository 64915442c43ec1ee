"""The interface of action dialects: how models are prompted for actions, and how they write them.

A dialect is one unit: system prompt, action schema, parser, coordinates, the history that its
models expect, and what ends a reply. Every dialect is a module in `agentrl.actions.dialects`, or a
user's own subclass of `Dialect`; `env.dialect` names it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agentrl.actions.reply_values import OUTSIDE
from agentrl.actions.screen_actions import ScreenAction, Tap
from agentrl.errors import ActionError, ConfigError, boundary, describe_error
from agentrl.extension_points import DIALECT
from agentrl.text import quoted

Size = tuple[int, int]
"""Width and height in pixels."""
ActionTypes = Collection[type[Any]]
"""Types of actions, from `agentrl.actions.screen_actions`."""
Resize = Callable[[Size], Size]
"""The size of the image that the model sees, for the size of a screen."""
SCREENS: tuple[Size, ...] = ((720, 1280), (1080, 2400), (1440, 3120), (2400, 1080), (1600, 2560))
"""Phones, one of them turned, and a tablet."""
# Coordinates of the taps that are checked.
_GRID = (1.0, 0.0, 0.999, 0.001, 0.25, 1 / 3, 0.5, 0.737)
# The largest error of a position in [0, 1]: the coarsest dialects write hundredths.
_TOLERANCE = 0.01


@dataclass(slots=True, kw_only=True, frozen=True)
class Screen:
    """The screen that actions are written for."""

    size: Size
    """Size of the screen in its own pixels."""
    seen: Size
    """Size of the image that the model sees, after the model's own resize."""


class Dialect(ABC):
    """How models of one family are asked for an action on a screen, and how they write it.

    A subclass sets `says` and implements `parse` and `spell`; the prompts have defaults that show
    the screen alone. Parsing never executes anything: a reply is an action of `says`, or an
    ActionError.

    Args:
        outside: whether a position outside the screen is refused or moved to its edge (`clamp`).

    Raises:
        ConfigError: `outside` is neither.
    """

    says: ClassVar[tuple[type[Any], ...]]
    """Types of the actions that it can say, from `agentrl.actions.screen_actions`."""
    history: ClassVar[str] = "concat"
    """The history that its models expect, as in `env.history`, which overrides it."""
    stop: ClassVar[tuple[str, ...]] = ()
    """Texts that end a reply, such as `</tool_call>`: at a local model where they are one token of
    it, and always behind a server."""

    def __init__(self, outside: str = "refuse") -> None:
        if outside not in OUTSIDE:
            raise ConfigError(
                f"env.dialect_kwargs.outside={outside!r} must be one of {', '.join(OUTSIDE)}"
            )
        self.clamp = outside == "clamp"
        self.resize: Resize = lambda size: size
        """The model's own resize; set when the dialect is opened for a model."""

    def screen(self, size: Size) -> Screen:
        """A screen of this size, as the model sees it."""
        return Screen(size=size, seen=self.resize(size))

    def served_size(self, size: Size) -> Size:
        """The size to which a server of such a model resizes an image; used for remote models."""
        return size

    @abstractmethod
    def parse(self, reply: str, screen: Screen) -> ScreenAction:
        """The action in a reply, its positions in [0, 1] of the screen.

        Raises:
            ActionError: the reply does not contain exactly one valid action.
        """

    @abstractmethod
    def spell(self, action: ScreenAction, screen: Screen, thought: str = "") -> str:
        """The reply with which such a model performs an action; the inverse of `parse`.

        Args:
            action: of one of the types in `says`.
            screen: that it is performed on.
            thought: the reasoning before it; empty for none.

        Raises:
            ActionError: the dialect cannot say this action.
        """

    def system(self, task: str, screen: Screen, accepts: ActionTypes) -> str:
        """The system message; empty for none.

        Args:
            task: what to do.
            screen: at the start of the episode.
            accepts: the types of actions that the environment accepts; describe these.
        """
        return task

    def opening(
        self, task: str, screen: Screen, accepts: ActionTypes, steps: Sequence[str], shown: str
    ) -> str:
        """The text of the first message of a prompt.

        Args:
            task: what to do.
            screen: that the message shows.
            accepts: the types of actions that the environment accepts.
            steps: all earlier replies of the episode.
            shown: what the environment shows, with `<image>` for each image.
        """
        return shown

    def following(self, shown: str) -> str:
        """The text of a later message of a prompt."""
        return shown


def type_names(types: ActionTypes) -> str:
    """Names of action types for messages: `tap, swipe`."""
    return ", ".join(sorted(kind.__name__.lower() for kind in types))


def open_dialect(
    name: str, kwargs: Mapping[str, Any] | None = None, resize: Resize | None = None
) -> Dialect:
    """The dialect of that name.

    Args:
        name: as `env.dialect` has it.
        kwargs: arguments of its class.
        resize: the model's own resize; None for a model that sees screens unchanged.

    Raises:
        ConfigError: there is no such dialect, it rejects the arguments, or its positions leave the
            screen.
    """
    cls = DIALECT.resolve(name)
    given = dict(kwargs or {})
    with boundary(ConfigError, f"env.dialect_kwargs={given}: the dialect {name} rejects them"):
        dialect: Dialect = cls(**given)
    if resize is not None:
        dialect.resize = resize
    # A wrong scale would train a model to miss; it shows here, before any phone is touched.
    try:
        for size in SCREENS:
            check_positions(dialect, dialect.screen(size))
    except AssertionError as error:
        raise ConfigError(f"env.dialect={name}: {error}") from error
    return dialect


def check_positions(dialect: Dialect, screen: Screen) -> None:
    """Check that taps all over a screen are spelled and parsed as the same place.

    Raises:
        AssertionError: one is not, or is parsed as a place outside the screen.
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
            raise AssertionError(f"{where} cannot be said: {error}") from error
        except Exception as error:
            raise AssertionError(f"{where} fails: {describe_error(error)}") from error
        assert isinstance(parsed, Tap), f"{where} is spelled {quoted(reply, 200)}: {parsed}"
        where += f" is spelled {quoted(reply, 200)} and parsed as ({parsed.x:.4g}, {parsed.y:.4g})"
        on_screen = 0 <= parsed.x <= 1 and 0 <= parsed.y <= 1
        assert on_screen, f"{where}, which is outside the screen: positions are in [0, 1]"
        close = abs(parsed.x - x) <= _TOLERANCE and abs(parsed.y - y) <= _TOLERANCE
        assert close, f"{where}, which is another place"


def smart_resize(size: Size, side: int, min_pixels: int, max_pixels: int) -> Size:
    """The size to which Qwen's image processors resize an image.

    Equals `qwen_vl_utils.smart_resize`. The two sides are rounded by themselves, so the ratio of
    width to height changes slightly.

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
