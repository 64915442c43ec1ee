"""AndroidWorld's `JSONAction`: `Action: {"action_type": "click", "x": 540, "y": 1200}`."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agentrl.actions import reply_values
from agentrl.actions.dialect import ActionTypes, Screen
from agentrl.actions.reply_values import CoordinateScale
from agentrl.actions.screen_actions import (
    AnswerUser,
    Done,
    DoubleTap,
    Key,
    LongPress,
    OpenApp,
    Point,
    PointTouch,
    ScreenAction,
    Swipe,
    Tap,
    Type,
    Wait,
)
from agentrl.actions.verb_dialect import Verb, VerbDialect
from agentrl.errors import ActionError

_ACTION = re.compile(r"^Action: *", re.MULTILINE)
_REASON = re.compile(r"^Reason:(.*)$", re.MULTILINE)
_TOP, _LEFT, _MIDDLE, _RIGHT, _BOTTOM = (0.5, 0.0), (0.0, 0.5), (0.5, 0.5), (1.0, 0.5), (0.5, 1.0)
# End points of swipes that start in the middle and reveal more on the named side.
_SCROLLS = {"down": _TOP, "up": _BOTTOM, "right": _LEFT, "left": _RIGHT}
# Start and end of AndroidWorld's own swipes. The finger moves in the named direction for up and
# down, but against it for left and right.
_SWIPES = {
    "down": (_TOP, _BOTTOM),
    "up": (_BOTTOM, _TOP),
    "left": (_LEFT, _RIGHT),
    "right": (_RIGHT, _LEFT),
}
_VERBS: Mapping[str, Verb] = {
    "status": Verb(
        Done,
        ("goal_status",),
        "- If you think the task has been completed, finish the task by using the "
        'status action with complete as goal_status: `{"action_type": "status", "goal_status": '
        '"complete"}`\n'
        "- If you think the task is not feasible, finish by using the `status` action with "
        'infeasible as goal_status: `{"action_type": "status", "goal_status": "infeasible"}`',
    ),
    "answer": Verb(
        AnswerUser,
        ("text",),
        '- Answer user\'s question: `{"action_type": "answer", "text": "<answer_text>"}`',
    ),
    "click": Verb(
        Tap,
        ("x", "y"),
        "- Click/tap on a point of the screen, in pixels from its top left corner: "
        '`{"action_type": "click", "x": <x>, "y": <y>}`',
    ),
    "double_tap": Verb(
        DoubleTap,
        ("x", "y"),
        '- Tap a point twice: `{"action_type": "double_tap", "x": <x>, "y": <y>}`',
    ),
    "long_press": Verb(
        LongPress,
        ("x", "y"),
        '- Long press on a point: `{"action_type": "long_press", "x": <x>, "y": <y>}`',
    ),
    "input_text": Verb(
        Type,
        ("text",),
        "- Type text into the focused text field: "
        '`{"action_type": "input_text", "text": <text_input>}`',
    ),
    "keyboard_enter": Verb(
        Key("ENTER"), (), '- Press the Enter key: `{"action_type": "keyboard_enter"}`'
    ),
    "navigate_home": Verb(
        Key("HOME"), (), '- Navigate to the home screen: `{"action_type": "navigate_home"}`'
    ),
    "navigate_back": Verb(Key("BACK"), (), '- Navigate back: `{"action_type": "navigate_back"}`'),
    "scroll": Verb(
        Swipe,
        ("direction",),
        "- Scroll the screen in one of the four directions: "
        '`{"action_type": "scroll", "direction": <up, down, left, right>}`',
    ),
    "swipe": Verb(
        Swipe,
        ("direction",),
        "- Swipe over the whole screen, the inverse of scroll: "
        '`{"action_type": "swipe", "direction": <up, down, left, right>}`',
    ),
    "open_app": Verb(
        OpenApp, ("app_name",), '- Open an app: `{"action_type": "open_app", "app_name": <name>}`'
    ),
    "wait": Verb(Wait, (), '- Wait for the screen to update: `{"action_type": "wait"}`'),
}


class AndroidWorldJSON(VerbDialect):
    """The format of google-research/android_world, `env/json_action.py`, with M3A's prompt.

    Points are in device pixels. `index` is rejected, because elements are not numbered here. As in
    AndroidWorld, a scroll or swipe has a direction but no points. A prompt contains one screen;
    earlier steps are listed in its text.

    Args:
        outside: `refuse` rejects a position outside the screen, `clamp` moves it to the edge.
    """

    verbs: ClassVar[Mapping[str, Verb]] = _VERBS
    statuses: ClassVar[tuple[str, str]] = ("complete", "infeasible")
    history: ClassVar[str] = "window:1"

    def scale(self, screen: Screen) -> CoordinateScale:
        return CoordinateScale(sides=screen.size, pixels=True, clamp=self.clamp)

    def parse(self, reply: str, screen: Screen) -> ScreenAction:
        pieces = _ACTION.split(reply)
        if len(pieces) != 2:
            count = len(pieces) - 1 or "no"
            raise ActionError(
                f"{count} lines of the reply start with `Action:`; expected exactly one"
            )
        given = reply_values.json_object(pieces[1], "a JSON object with an action_type")
        name = reply_values.one_of(given.pop("action_type", None), "action_type", self.verbs)
        # AndroidWorld's agents may refer to elements of the accessibility tree, but we don't show
        # it.
        if "index" in given:
            raise ActionError(f"{name}: index is not supported; use x and y")
        return self.read(name, given, screen)

    def points(self, name: str, given: Mapping[str, Any], screen: Screen) -> list[Point]:
        if "direction" in given:
            way = reply_values.one_of(given["direction"], f"{name}: direction", _SCROLLS)
            return [_MIDDLE, _SCROLLS[way]] if name == "scroll" else list(_SWIPES[way])
        # Round fractions down, because they lie within a pixel.
        numbers = reply_values.point([given["x"], given["y"]], name)
        pixel = math.floor(numbers[0]), math.floor(numbers[1])
        return [self.scale(screen).position(pixel, name)]

    def written(self, action: ScreenAction, screen: Screen) -> tuple[str, dict[str, Any]]:
        """See VerbDialect.written; for a swipe, only the direction is written."""
        name, given = super().written(action, screen)
        match action:
            case Swipe(x1, y1, x2, y2):
                across, down = (x2 - x1) * screen.size[0], (y2 - y1) * screen.size[1]
                ways = ("left", "right") if abs(across) > abs(down) else ("up", "down")
                moves_forward = (across if abs(across) > abs(down) else down) > 0
                # A scroll names the side that it reveals, so the finger moves the other way.
                return "scroll", {"direction": ways[not moves_forward]}
            case PointTouch(x, y):
                return name, dict(zip("xy", self.scale(screen).numbers(x, y), strict=True))
        return name, given

    def framed(self, name: str, given: Mapping[str, Any], thought: str) -> str:
        said = json.dumps({"action_type": name, **given}, ensure_ascii=False)
        return f"Reason: {thought}\nAction: {said}" if thought else f"Action: {said}"

    def system(self, task: str, screen: Screen, accepts: ActionTypes) -> str:
        """Return an empty string, because each message contains the prompt."""
        return ""

    def opening(
        self, task: str, screen: Screen, accepts: ActionTypes, steps: Sequence[str], shown: str
    ) -> str:
        """Write the actions, the task, earlier steps, and the screen."""
        width, height = screen.size
        actions = "\n".join(verb.description for verb in self.accepted(accepts).values())
        done = "\n".join(f"Step {n}- {_step(reply)}" for n, reply in enumerate(steps, 1))
        history = done or "You just started, no action has been performed yet."
        return (
            "You are an agent who can operate an Android phone on behalf of a user. At each step, "
            "you will be given the current screenshot and a history of what you have done (in "
            "text). Based on these pieces of information and the goal, you must choose to perform "
            "one of the action in the following list (action description followed by the JSON "
            f"format) by outputting the action in the correct JSON format.\n{actions}\n"
            f"The screen has {width}x{height} pixels.\n\nThe current user goal/request is: {task}"
            f"\n\nHere is a history of what you have done so far:\n{history}\n\nNow output an "
            "action from the above list in the correct JSON format, following the reason why you "
            'do that. Your answer should look like:\nReason: ...\nAction: {"action_type":...}\n\n'
            f"Your Answer:\n{shown}"
        )


def _step(reply: str) -> str:
    """Summarize an earlier reply for the history: its reason, or else its action."""
    found = _REASON.search(reply)
    return (found[1] if found else _ACTION.split(reply)[-1]).strip().replace("\n", " ")
