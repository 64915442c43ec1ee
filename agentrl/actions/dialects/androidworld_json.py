"""AndroidWorld's `JSONAction`: `Action: {"action_type": "click", "x": 540, "y": 1200}`."""

import json
import math
import re
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from agentrl.actions import reply_values
from agentrl.actions.dialect import Dialect, Screen
from agentrl.actions.reply_values import CoordinateScale
from agentrl.actions.screen_actions import (
    AnswerUser,
    Done,
    DoubleTap,
    Key,
    LongPress,
    OpenApp,
    ScreenAction,
    Swipe,
    Tap,
    Type,
    Wait,
)
from agentrl.errors import ActionError
from agentrl.text import quoted

_ACTION = re.compile(r"^Action: *", re.MULTILINE)
_REASON = re.compile(r"^Reason:(.*)$", re.MULTILINE)
_POINTS: dict[str, type[Any]] = {"click": Tap, "double_tap": DoubleTap, "long_press": LongPress}
_KEYS = {"keyboard_enter": "ENTER", "navigate_home": "HOME", "navigate_back": "BACK"}
_STATUSES = ("complete", "infeasible")
"""Values of `status` for success and for failure."""
_WAIT_S = 1.0
_TOP, _LEFT, _MIDDLE, _RIGHT, _BOTTOM = (0.5, 0.0), (0.0, 0.5), (0.5, 0.5), (1.0, 0.5), (0.5, 1.0)
_SCROLLS = {"down": _TOP, "up": _BOTTOM, "right": _LEFT, "left": _RIGHT}
"""End points of the swipe that starts in the middle and shows more on the named side."""
_SWIPES = {
    "down": (_TOP, _BOTTOM),
    "up": (_BOTTOM, _TOP),
    "left": (_LEFT, _RIGHT),
    "right": (_RIGHT, _LEFT),
}
"""Start and end of AndroidWorld's own swipes: the finger moves in the named direction for up and
down, against it for left and right."""
_SPACE: tuple[tuple[type[Any], str], ...] = (
    (
        Done,
        "- If you think the task has been completed, finish the task by using the status action "
        'with complete as goal_status: `{"action_type": "status", "goal_status": "complete"}`\n'
        "- If you think the task is not feasible, finish by using the `status` action with "
        'infeasible as goal_status: `{"action_type": "status", "goal_status": "infeasible"}`',
    ),
    (AnswerUser, '- Answer user\'s question: `{"action_type": "answer", "text": "<answer_text>"}`'),
    (
        Tap,
        "- Click/tap on a point of the screen, in pixels from its top left corner: "
        '`{"action_type": "click", "x": <x>, "y": <y>}`',
    ),
    (DoubleTap, '- Tap a point twice: `{"action_type": "double_tap", "x": <x>, "y": <y>}`'),
    (LongPress, '- Long press on a point: `{"action_type": "long_press", "x": <x>, "y": <y>}`'),
    (
        Type,
        "- Type text into the focused text field: "
        '`{"action_type": "input_text", "text": <text_input>}`',
    ),
    (
        Key,
        '- Press the Enter key: `{"action_type": "keyboard_enter"}`\n'
        '- Navigate to the home screen: `{"action_type": "navigate_home"}`\n'
        '- Navigate back: `{"action_type": "navigate_back"}`',
    ),
    (
        Swipe,
        "- Scroll the screen in one of the four directions: "
        '`{"action_type": "scroll", "direction": <up, down, left, right>}`\n'
        "- Swipe over the whole screen, the inverse of scroll: "
        '`{"action_type": "swipe", "direction": <up, down, left, right>}`',
    ),
    (OpenApp, '- Open an app: `{"action_type": "open_app", "app_name": <name>}`'),
    (Wait, '- Wait for the screen to update: `{"action_type": "wait"}`'),
)


class AndroidWorldJSON(Dialect):
    """The format of google-research/android_world, `env/json_action.py`, prompted as its agent M3A.

    Points are pixels of the screen itself; elements have no numbers here, so `index` is refused. A
    scroll or swipe has a direction but no points, as AndroidWorld performs it. A prompt holds one
    screen; earlier steps are listed in its text.

    Args:
        outside: whether a position outside the screen is refused or moved to its edge (`clamp`).
    """

    says: ClassVar[tuple[type[Any], ...]] = tuple(kind for kind, _ in _SPACE)
    history: ClassVar[str] = "window:1"

    def parse(self, reply: str, screen: Screen) -> ScreenAction:
        """See Dialect.parse."""
        pieces = _ACTION.split(reply)
        if len(pieces) != 2:
            count = len(pieces) - 1 or "no"
            raise ActionError(
                f"{count} lines of the reply start with `Action:`; expected exactly one"
            )
        given = reply_values.json_object(pieces[1], "a JSON object with an action_type")
        known = (*_POINTS, *_KEYS, *_TEXTS, "scroll", "swipe", "status", "wait")
        name = reply_values.one_of(given.pop("action_type", None), "action_type", known)
        if "index" in given:
            raise ActionError(f"{name}: elements have no index here; use x and y")
        if name in _POINTS:
            reply_values.check_keys(name, given, ("x", "y"))
            numbers = reply_values.point([given["x"], given["y"]], name)
            scale = CoordinateScale(sides=screen.size, pixels=True, clamp=self.clamp)
            pixel = math.floor(numbers[0]), math.floor(numbers[1])
            touch: ScreenAction = _POINTS[name](*scale.position(pixel, name))
            return touch
        return _without_position(name, given)

    def spell(self, action: ScreenAction, screen: Screen, thought: str = "") -> str:
        """See Dialect.spell; of a swipe only the direction is said."""
        said = json.dumps(_said(action, screen), ensure_ascii=False)
        return f"Reason: {thought}\nAction: {said}" if thought else f"Action: {said}"

    def system(self, task: str, screen: Screen, accepts: Collection[type[Any]]) -> str:
        """Return None: each message holds the prompt."""
        return ""

    def opening(
        self,
        task: str,
        screen: Screen,
        accepts: Collection[type[Any]],
        steps: Sequence[str],
        shown: str,
    ) -> str:
        """The actions, the task, earlier steps, and the screen."""
        width, height = screen.size
        actions = "\n".join(line for kind, line in _SPACE if kind in accepts)
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


_TEXTS: dict[str, tuple[str, type[Any]]] = {
    "input_text": ("text", Type),
    "open_app": ("app_name", OpenApp),
    "answer": ("text", AnswerUser),
}


def _without_position(name: str, given: dict[str, Any]) -> ScreenAction:
    if name in _TEXTS:
        key, kind = _TEXTS[name]
        reply_values.check_keys(name, given, (key,))
        action: ScreenAction = kind(reply_values.typed_text(given[key], f"{name}: {key}"))
        return action
    if name in ("scroll", "swipe"):
        reply_values.check_keys(name, given, ("direction",))
        way = reply_values.one_of(given["direction"], f"{name}: direction", _SCROLLS)
        ends = (_MIDDLE, _SCROLLS[way]) if name == "scroll" else _SWIPES[way]
        return Swipe(*ends[0], *ends[1])
    if name == "status":
        reply_values.check_keys(name, given, ("goal_status",))
        status = reply_values.one_of(given["goal_status"], f"{name}: goal_status", _STATUSES)
        return Done(status=status)
    reply_values.check_keys(name, given, ())
    return Wait(_WAIT_S) if name == "wait" else Key(_KEYS[name])


def _said(action: ScreenAction, screen: Screen) -> dict[str, Any]:
    width, height = screen.size

    def at(x: float, y: float) -> dict[str, int]:
        numbers = CoordinateScale(sides=screen.size, pixels=True).numbers(x, y)
        return {"x": numbers[0], "y": numbers[1]}

    match action:
        case Tap(x, y):
            return {"action_type": "click", **at(x, y)}
        case DoubleTap(x, y):
            return {"action_type": "double_tap", **at(x, y)}
        case LongPress(x, y):
            return {"action_type": "long_press", **at(x, y)}
        case Swipe(x1, y1, x2, y2):
            across, down = (x2 - x1) * width, (y2 - y1) * height
            ways = ("left", "right") if abs(across) > abs(down) else ("up", "down")
            moves_forward = (across if abs(across) > abs(down) else down) > 0
            return {"action_type": "scroll", "direction": ways[not moves_forward]}
        case Type(text):
            return {"action_type": "input_text", "text": text}
        case OpenApp(name):
            return {"action_type": "open_app", "app_name": name}
        case AnswerUser(text):
            return {"action_type": "answer", "text": text}
        case Wait():
            return {"action_type": "wait"}
        case Done():
            return {"action_type": "status", "goal_status": _STATUSES[action.failed]}
        case Key("ENTER" | "HOME" | "BACK" as key):
            return {"action_type": {key: name for name, key in _KEYS.items()}[key]}
    raise ActionError(f"androidworld-json cannot say {quoted(action)}")


def _step(reply: str) -> str:
    """An earlier reply in the history: its reason, or else its action."""
    found = _REASON.search(reply)
    return (found[1] if found else _ACTION.split(reply)[-1]).strip().replace("\n", " ")
