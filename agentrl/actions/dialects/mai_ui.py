"""MAI-UI's `mobile_use`: coordinates from 0 to 999, swipes by direction."""

from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from agentrl.actions import reply_values
from agentrl.actions.dialect import Dialect, Screen
from agentrl.actions.mobile_use import arguments_in, tool_call
from agentrl.actions.reply_values import CoordinateScale
from agentrl.actions.screen_actions import (
    AnswerUser,
    AskUser,
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
from agentrl.errors import ActionError, ConfigError

_LAST = 999
_BUTTONS = {"back": "BACK", "home": "HOME", "menu": "MENU", "enter": "ENTER"}
_WAIT_S = 1.0
_REACH = {"up": (0.0, -0.4), "down": (0.0, 0.4), "left": (-0.2, 0.0), "right": (0.2, 0.0)}
"""How far the finger moves, in widths of the screen, as in Tongyi-MAI/MobileWorld's controller."""
_SPACE: tuple[tuple[type[Any], str], ...] = (
    (Tap, '{"action": "click", "coordinate": [x, y]}'),
    (LongPress, '{"action": "long_press", "coordinate": [x, y]}'),
    (Type, '{"action": "type", "text": ""}'),
    (
        Swipe,
        '{"action": "swipe", "direction": "up or down or left or right", "coordinate": [x, y]} '
        '# "coordinate" is optional. Use the "coordinate" if you want to swipe a specific UI '
        "element.",
    ),
    (OpenApp, '{"action": "open", "text": "app_name"}'),
    (
        Swipe,
        '{"action": "drag", "start_coordinate": [x1, y1], "end_coordinate": [x2, y2]}',
    ),
    (
        Key,
        '{"action": "system_button", "button": "button_name"} # Options: back, home, menu, enter',
    ),
    (Wait, '{"action": "wait"}'),
    (Done, '{"action": "terminate", "status": "success or fail"}'),
    (
        AnswerUser,
        '{"action": "answer", "text": "xxx"} # Use escape characters \\\', \\", and \\n in text '
        "part to ensure we can parse the text in normal python string format.",
    ),
    (
        AskUser,
        '{"action": "ask_user", "text": "xxx"} # you can ask user for more information to complete '
        "the task.",
    ),
    (DoubleTap, '{"action": "double_click", "coordinate": [x, y]}'),
)
_ARGUMENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "click": (("coordinate",), ()),
    "long_press": (("coordinate",), ()),
    "double_click": (("coordinate",), ()),
    "type": (("text",), ()),
    "swipe": (("direction",), ("coordinate",)),
    "open": (("text",), ()),
    "drag": (("start_coordinate", "end_coordinate"), ()),
    "system_button": (("button",), ()),
    "wait": ((), ()),
    "terminate": (("status",), ()),
    "answer": (("text",), ()),
    "ask_user": (("text",), ()),
}
"""Required and optional arguments of each action."""


class MAIUI(Dialect):
    """The format of Tongyi-MAI/MAI-UI, `src/prompt.py` of January 2026.

    A `swipe` moves the finger in its direction, and a `drag` is a swipe between two points. The
    conversation keeps all replies and the last three screens.

    Args:
        outside: whether a position outside the screen is refused or moved to its edge (`clamp`).
        thinking: whether replies begin with reasoning in `<thinking>` tags.
        ask_user: whether the prompt also offers `ask_user` and `double_click`.
        apps: names of the apps that `open` can open; empty leaves the list out.

    Raises:
        ConfigError: `apps` is not a list.
    """

    says: ClassVar[tuple[type[Any], ...]] = tuple(dict.fromkeys(kind for kind, _ in _SPACE))
    history: ClassVar[str] = "screens:3"
    stop: ClassVar[tuple[str, ...]] = ("</tool_call>",)

    def __init__(
        self,
        outside: str = "refuse",
        thinking: bool = True,
        ask_user: bool = True,
        apps: Sequence[str] = (),
    ) -> None:
        super().__init__(outside)
        if isinstance(apps, str):
            raise ConfigError(f"env.dialect_kwargs.apps={apps!r} must be a list of names")
        self._thinking, self._ask_user, self._apps = thinking, ask_user, tuple(apps)

    def parse(self, reply: str, screen: Screen) -> ScreenAction:
        """See Dialect.parse."""
        verb, given = arguments_in(reply, _ARGUMENTS)
        name = f"action={verb}"
        reply_values.check_keys(name, given, *_ARGUMENTS[verb])

        def at(key: str) -> tuple[float, float]:
            numbers = reply_values.point(given[key], f"{name}: {key}")
            return self._scale.position(numbers, name)

        if verb == "click":
            return Tap(*at("coordinate"))
        if verb == "long_press":
            return LongPress(*at("coordinate"))
        if verb == "double_click":
            return DoubleTap(*at("coordinate"))
        if verb == "drag":
            return Swipe(*at("start_coordinate"), *at("end_coordinate"))
        if verb == "swipe":
            direction = reply_values.one_of(given["direction"], f"{name}: direction", _REACH)
            start = at("coordinate") if "coordinate" in given else (0.5, 0.5)
            return _swipe(start, direction, screen)
        return _without_position(verb, given)

    @property
    def _scale(self) -> CoordinateScale:
        return CoordinateScale(sides=(_LAST, _LAST), clamp=self.clamp)

    def spell(self, action: ScreenAction, screen: Screen, thought: str = "") -> str:
        """See Dialect.spell; a swipe is a `drag`, which has two ends."""
        at = self._scale.numbers
        said: dict[str, Any]
        match action:
            case Tap(x, y):
                said = {"action": "click", "coordinate": at(x, y)}
            case LongPress(x, y):
                said = {"action": "long_press", "coordinate": at(x, y)}
            case DoubleTap(x, y):
                said = {"action": "double_click", "coordinate": at(x, y)}
            case Swipe(x1, y1, x2, y2):
                said = {"start_coordinate": at(x1, y1), "end_coordinate": at(x2, y2)}
                said = {"action": "drag", **said}
            case _:
                said = _said_without_position(action)
        if not self._thinking:
            return tool_call(said)
        return f"<thinking>\n{thought}\n</thinking>\n{tool_call(said)}"

    def system(self, task: str, screen: Screen, accepts: Collection[type[Any]]) -> str:
        """Output format and action space."""
        thinks = "the thinking process in <thinking> </thinking> tags, and " * self._thinking
        frame = "<thinking>\n...\n</thinking>\n" * self._thinking
        extras = (AskUser, DoubleTap) if not self._ask_user else ()
        space = "\n".join(line for kind, line in _SPACE if kind in accepts and kind not in extras)
        return (
            "You are a GUI agent. You are given a task and your action history, with screenshots. "
            "You need to perform the next action to complete the task.\n\n"
            f"## Output Format\nFor each function call, return {thinks}a json object with function "
            "name and arguments within <tool_call></tool_call> XML tags:\n```\n"
            f"{frame}<tool_call>\n"
            '{"name": "mobile_use", "arguments": <args-json-object>}\n</tool_call>\n```\n\n'
            f"## Action Space\n\n{space}\n\n\n## Note\n{self._notes(accepts)}"
        )

    def _notes(self, accepts: Collection[type[Any]]) -> str:
        notes = []
        if self._thinking:
            notes.append(
                "- Write a small plan and finally summarize your next action (with its target "
                "element) in one sentence in <thinking></thinking> part."
            )
        if self._apps and OpenApp in accepts:
            names = ",".join(f'"{app}"' for app in self._apps)
            notes.append(
                f"- Available Apps: `[{names}]`.\nYou should use the `open` action to open the app "
                "as possible as you can, because it is the fast way to open the app."
            )
        notes.append(
            "- You must follow the Action Space strictly, and return the correct json object "
            "within <thinking> </thinking> and <tool_call></tool_call> XML tags."
        )
        return "\n".join(notes)

    def opening(
        self,
        task: str,
        screen: Screen,
        accepts: Collection[type[Any]],
        steps: Sequence[str],
        shown: str,
    ) -> str:
        """The task, and the screen."""
        return f"{task}{shown}"


def _swipe(start: tuple[float, float], direction: str, screen: Screen) -> Swipe:
    """A swipe of the finger from a point in a direction, as far as the screen reaches."""
    width, height = screen.size
    across, down = _REACH[direction]
    x, y = start[0] + across, start[1] + down * width / height
    return Swipe(*start, min(max(x, 0.0), 1.0), min(max(y, 0.0), 1.0))


def _without_position(verb: str, given: dict[str, Any]) -> ScreenAction:
    name = f"action={verb}"
    if verb == "wait":
        return Wait(_WAIT_S)
    if verb == "system_button":
        return Key(_BUTTONS[reply_values.one_of(given["button"], f"{name}: button", _BUTTONS)])
    if verb == "terminate":
        known = ("success", "fail")
        return Done(status=reply_values.one_of(given["status"], f"{name}: status", known))
    text = reply_values.typed_text(given["text"], f"{name}: text")
    kinds: dict[str, type[Any]] = {
        "type": Type,
        "open": OpenApp,
        "answer": AnswerUser,
        "ask_user": AskUser,
    }
    action: ScreenAction = kinds[verb](text)
    return action


def _said_without_position(action: ScreenAction) -> dict[str, Any]:
    match action:
        case Type(text):
            return {"action": "type", "text": text}
        case OpenApp(text):
            return {"action": "open", "text": text}
        case AnswerUser(text):
            return {"action": "answer", "text": text}
        case AskUser(text):
            return {"action": "ask_user", "text": text}
        case Wait():
            return {"action": "wait"}
        case Done(status):
            return {"action": "terminate", "status": "fail" if status == "fail" else "success"}
        case Key(name) if name.lower() in _BUTTONS:
            return {"action": "system_button", "button": name.lower()}
    raise ActionError(f"mai-ui cannot say {action}")
