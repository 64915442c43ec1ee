"""UI-TARS 1.5: points in pixels of the resized image."""

from collections.abc import Collection
from typing import Any, ClassVar

from agentrl.actions.dialect import Screen, Size
from agentrl.actions.dialects.ui_tars import UITars
from agentrl.actions.reply_values import CoordinateScale
from agentrl.actions.screen_actions import (
    Done,
    Key,
    LongPress,
    OpenApp,
    ScreenAction,
    Swipe,
    Tap,
    Type,
)
from agentrl.actions.smart_resize import smart_resize

_ESCAPED = (
    "# Use escape characters \\', \\\", and \\n in content part to ensure we can parse the content "
    "in normal python string format."
)


class UITars15(UITars):
    """The format of bytedance/UI-TARS, `codes/ui_tars/prompt.py`: the mobile prompt.

    A `scroll` shows more on the side that it names, so the finger moves the other way; a `drag` is
    a swipe between two points. The conversation keeps all replies and the last five screens.

    Args:
        outside: whether a position outside the screen is refused or moved to its edge (`clamp`).
        language: of the thoughts, as the prompt states it.
        min_pixels: smallest area of an image on a server; with a local model, its adapter resizes.
        max_pixels: largest area of an image on a server.
    """

    says: ClassVar[tuple[type[Any], ...]] = (Tap, LongPress, Type, Swipe, OpenApp, Key, Done)
    space: ClassVar[tuple[tuple[type[Any], str], ...]] = (
        (Tap, "click(point='<point>x1 y1</point>')"),
        (LongPress, "long_press(point='<point>x1 y1</point>')"),
        (
            Type,
            "type(content='') #If you want to submit your input, use \"\\n\" at the end of "
            "`content`.",
        ),
        (
            Swipe,
            "scroll(point='<point>x1 y1</point>', direction='down or up or right or left')",
        ),
        (OpenApp, "open_app(app_name='')"),
        (
            Swipe,
            "drag(start_point='<point>x1 y1</point>', end_point='<point>x2 y2</point>')",
        ),
        (Key, "press_home()"),
        (Key, "press_back()"),
        (Done, f"finished(content='xxx') {_ESCAPED}"),
    )

    def __init__(
        self,
        outside: str = "refuse",
        language: str = "English",
        min_pixels: int = 100 * 28 * 28,
        max_pixels: int = 16384 * 28 * 28,
    ) -> None:
        super().__init__(outside, language)
        self._limits = (min_pixels, max_pixels)

    def served_size(self, size: Size) -> Size:
        """A multiple of 28 pixels."""
        return smart_resize(size, 28, *self._limits)

    def scale(self, screen: Screen) -> CoordinateScale:
        """Pixels of the resized image."""
        return CoordinateScale(sides=screen.seen, clamp=self.clamp)

    def box(self, x: float, y: float, screen: Screen) -> str:
        """A point as it is written."""
        across, down = self.scale(screen).numbers(x, y)
        return f"<point>{across} {down}</point>"

    def spell_call(self, action: ScreenAction, screen: Screen) -> str:
        """The call that performs an action."""
        if isinstance(action, Swipe):
            start = self.box(action.x1, action.y1, screen)
            end = self.box(action.x2, action.y2, screen)
            return f"drag(start_point='{start}', end_point='{end}')"
        said = super().spell_call(action, screen)
        touches = isinstance(action, Tap | LongPress)
        return said.replace("start_box=", "point=") if touches else said

    def prompt(self, accepts: Collection[type[Any]]) -> str:
        """All before the task."""
        space = "\n".join(line for kind, line in self.space if kind in accepts)
        return (
            "You are a GUI agent. You are given a task and your action history, with screenshots. "
            "You need to perform the next action to complete the task. \n"
            "## Output Format\n```\nThought: ...\nAction: ...\n```\n"
            f"## Action Space\n\n{space}\n\n\n## Note\n- Use {self._language} in `Thought` part.\n"
            "- Write a small plan and finally summarize your next action (with its target element) "
            "in one sentence in `Thought` part.\n\n## User Instruction\n"
        )
