"""agentrl's own format: actions in tags, `<action>tap(0.21, 0.70)</action>`."""

from functools import lru_cache
from typing import Any, ClassVar

from agentrl.actions.action_calls import TAGS, ActionSet
from agentrl.actions.dialect import ActionTypes, Dialect, Screen, Size
from agentrl.actions.screen_action_syntax import ACTION_FORMS, ActionSyntax
from agentrl.actions.screen_actions import ScreenAction, Tap


class Tag(Dialect):
    """One call in `<action>` tags, after reasoning in `<think>` tags.

    Args:
        positions: `unit` for positions in [0, 1], `thousand` for 0 to 1000, `pixels` for pixels of
            the image that the model sees.
        outside: `refuse` rejects a position outside the screen, `clamp` moves it to the edge.

    Raises:
        ConfigError: `positions` or `outside` has an unknown value.
    """

    says: ClassVar[tuple[type[Any], ...]] = tuple(ACTION_FORMS)
    style: ClassVar[str] = "tag"
    action_tag: ClassVar[str | None] = TAGS["tag"]

    def __init__(self, positions: str = "unit", outside: str = "refuse") -> None:
        # Build a syntax to check both arguments.
        _syntax(positions, outside, (1, 1), self.style)
        super().__init__(outside)
        self._positions, self._outside = positions, outside

    def parse(self, reply: str, screen: Screen) -> ScreenAction:
        return self._syntax(screen).parse(reply)

    def spell(self, action: ScreenAction, screen: Screen, thought: str = "") -> str:
        assert isinstance(action, self.says), f"{action} is not in the syntax"
        text = self._syntax(screen).format(action)
        return f"<think>{thought}</think>{text}" if thought else text

    def system(self, task: str, screen: Screen, accepts: ActionTypes) -> str:
        """Write the task and the form of each accepted action."""
        return f"{task} {self.answer_format(accepts, screen)}".strip()

    def answer_format(self, accepts: ActionTypes, screen: Screen) -> str:
        """Describe the form of each accepted action, in one sentence."""
        accepted = [kind for kind in self.says if kind in accepts]
        forms = ActionSet((ACTION_FORMS[kind] for kind in accepted), self.style).describe()
        positions = "x and y" if accepted == [Tap] else "positions"
        width, height = screen.seen
        extent = {
            "unit": "from 0.00 (left, top) to 1.00",
            "thousand": "from 0 (left, top) to 1000",
            "pixels": f"in pixels of the image of {width}x{height}",
        }[self._positions]
        return f"Answer {forms}, {positions} {extent}."

    def _syntax(self, screen: Screen) -> ActionSyntax:
        size = screen.seen if self._positions == "pixels" else None
        return _syntax(self._positions, self._outside, size, self.style)


@lru_cache(maxsize=256)
def _syntax(positions: Any, outside: Any, size: Size | None, style: str) -> ActionSyntax:
    return ActionSyntax(positions=positions, outside=outside, size=size, style=style)
