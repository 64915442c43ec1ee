"""The interface of action dialects: how models are prompted for actions, and how they write them.

A dialect is one unit: system prompt, action schema, parser, coordinates, the history that its
models expect, and what ends a reply. Every dialect is a module in `agentrl.actions.dialects`, or a
user's own subclass of `Dialect`; `env.dialect` names it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agentrl.actions.reply_values import OUTSIDE
from agentrl.actions.screen_actions import ScreenAction
from agentrl.errors import ConfigError

Size = tuple[int, int]
"""Width and height in pixels."""
Resize = Callable[[Size], Size]
"""The size of the image that the model sees, for the size of a screen."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Screen:
    """The screen that actions are written for."""

    size: Size
    """Size of the screen in its own pixels."""
    seen: Size
    """Size of the image that the model sees, after the model's own resize."""


def _unchanged(size: Size) -> Size:
    return size


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
        self.resize: Resize = _unchanged
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

    def system(self, task: str, screen: Screen, accepts: Collection[type[Any]]) -> str:
        """The system message; empty for none.

        Args:
            task: what to do.
            screen: at the start of the episode.
            accepts: the types of actions that the environment accepts; describe these.
        """
        return task

    def opening(
        self,
        task: str,
        screen: Screen,
        accepts: Collection[type[Any]],
        steps: Sequence[str],
        shown: str,
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


def type_names(types: Collection[type[Any]]) -> str:
    """Names of action types for messages: `tap, swipe`."""
    return ", ".join(sorted(kind.__name__.lower() for kind in types))
