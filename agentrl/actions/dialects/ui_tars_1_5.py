"""UI-TARS 1.5, with points in pixels of the resized image."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from agentrl.actions.dialect import ActionTypes, Screen, Size, smart_resize
from agentrl.actions.dialects.ui_tars import UITars
from agentrl.actions.reply_values import CoordinateScale
from agentrl.actions.screen_actions import OpenApp, Swipe
from agentrl.actions.verb_dialect import Verb

_ESCAPED = (
    "# Use escape characters \\', \\\", and \\n in content part to ensure we can parse the content "
    "in normal python string format."
)


class UITars15(UITars):
    """The format of bytedance/UI-TARS, `codes/ui_tars/prompt.py`: the mobile prompt.

    A `scroll` reveals more on the named side, so the finger moves the other way; a `drag` is a
    swipe between two points. The conversation keeps all replies and the last five screens.

    Args:
        outside: `refuse` rejects a position outside the screen, `clamp` moves it to the edge.
        language: language of the thoughts, stated in the prompt.
        min_pixels: smallest area of an image on a server; with a local model, its adapter resizes.
        max_pixels: largest area of an image on a server.
    """

    verbs: ClassVar[Mapping[str, Verb]] = {
        "click": replace(UITars.verbs["click"], description="click(point='<point>x1 y1</point>')"),
        "long_press": replace(
            UITars.verbs["long_press"], description="long_press(point='<point>x1 y1</point>')"
        ),
        "type": replace(
            UITars.verbs["type"],
            description="type(content='') #If you want to submit your input, use \"\\n\" at the "
            "end of `content`.",
        ),
        "scroll": replace(
            UITars.verbs["scroll"],
            description="scroll(point='<point>x1 y1</point>', "
            "direction='down or up or right or left')",
        ),
        "open_app": Verb(OpenApp, ("app_name",), "open_app(app_name='')"),
        "drag": Verb(
            Swipe,
            ("start_box", "end_box"),
            "drag(start_point='<point>x1 y1</point>', end_point='<point>x2 y2</point>')",
        ),
        "press_home": UITars.verbs["press_home"],
        "press_back": UITars.verbs["press_back"],
        "finished": replace(
            UITars.verbs["finished"], description=f"finished(content='xxx') {_ESCAPED}"
        ),
    }

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
        return smart_resize(size, 28, *self._limits)

    def scale(self, screen: Screen) -> CoordinateScale:
        return CoordinateScale(sides=screen.seen, clamp=self.clamp)

    def written_point(self, x: float, y: float, screen: Screen) -> str:
        return "<point>{} {}</point>".format(*self.scale(screen).numbers(x, y))

    def framed(self, name: str, given: Mapping[str, Any], thought: str) -> str:
        """Write the thought and the action, with this version's names for points."""
        start = "start_point" if "end_box" in given else "point"
        renamed = {"start_box": start, "end_box": "end_point"}
        named = {renamed.get(key, key): value for key, value in given.items()}
        return super().framed(name, named, thought)

    def prompt(self, accepts: ActionTypes) -> str:
        space = "\n".join(verb.description for verb in self.accepted(accepts).values())
        return (
            "You are a GUI agent. You are given a task and your action history, with screenshots. "
            "You need to perform the next action to complete the task. \n"
            "## Output Format\n```\nThought: ...\nAction: ...\n```\n"
            f"## Action Space\n\n{space}\n\n\n## Note\n- Use {self._language} in `Thought` part.\n"
            "- Write a small plan and finally summarize your next action (with its target element) "
            "in one sentence in `Thought` part.\n\n## User Instruction\n"
        )
