"""MAI-UI's `mobile_use`: coordinates from 0 to 999, swipes by direction."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agentrl.actions import reply_values
from agentrl.actions.dialect import ActionTypes, Screen
from agentrl.actions.mobile_use_dialect import BUTTONS, MobileUse, tool_call
from agentrl.actions.reply_values import CoordinateScale
from agentrl.actions.screen_actions import (
    AnswerUser,
    AskUser,
    Done,
    DoubleTap,
    Key,
    LongPress,
    OpenApp,
    Point,
    Swipe,
    Tap,
    Type,
    Wait,
)
from agentrl.actions.verb_dialect import Verb
from agentrl.errors import ConfigError

# Distance that the finger moves, in screen widths, as in Tongyi-MAI/MobileWorld's controller.
_REACH = {"up": (0.0, -0.4), "down": (0.0, 0.4), "left": (-0.2, 0.0), "right": (0.2, 0.0)}


class MAIUI(MobileUse):
    """The format of Tongyi-MAI/MAI-UI, `src/prompt.py` of January 2026.

    A `swipe` moves the finger in the named direction; a `drag` is a swipe between two points. The
    conversation keeps all replies and the last three screens.

    Args:
        outside: `refuse` rejects a position outside the screen, `clamp` moves it to the edge.
        thinking: whether replies begin with reasoning in `<thinking>` tags.
        ask_user: whether the prompt also offers `ask_user` and `double_click`.
        apps: names of apps for `open`, to be listed in the prompt; if empty, there is no list.

    Raises:
        ConfigError: `apps` is not a list.
    """

    verbs: ClassVar[Mapping[str, Verb]] = {
        "click": Verb(Tap, ("coordinate",), '{"action": "click", "coordinate": [x, y]}'),
        "long_press": Verb(
            LongPress, ("coordinate",), '{"action": "long_press", "coordinate": [x, y]}'
        ),
        "type": Verb(Type, ("text",), '{"action": "type", "text": ""}'),
        "swipe": Verb(
            Swipe,
            ("direction", "coordinate"),
            '{"action": "swipe", "direction": "up or down or left or right", '
            '"coordinate": [x, y]} # "coordinate" is optional. Use the "coordinate" if you want to '
            "swipe a specific UI element.",
            may_lack=("coordinate",),
        ),
        "open": Verb(OpenApp, ("text",), '{"action": "open", "text": "app_name"}'),
        "drag": Verb(
            Swipe,
            ("start_coordinate", "end_coordinate"),
            '{"action": "drag", "start_coordinate": [x1, y1], "end_coordinate": [x2, y2]}',
        ),
        "system_button": Verb(
            Key,
            ("button",),
            '{"action": "system_button", "button": "button_name"} # Options: back, '
            "home, menu, enter",
        ),
        "wait": Verb(Wait, (), '{"action": "wait"}'),
        "terminate": Verb(
            Done, ("status",), '{"action": "terminate", "status": "success or fail"}'
        ),
        "answer": Verb(
            AnswerUser,
            ("text",),
            '{"action": "answer", "text": "xxx"} # Use escape characters \\\', \\", '
            "and \\n in text part to ensure we can parse the text in normal python string format.",
        ),
        "ask_user": Verb(
            AskUser,
            ("text",),
            '{"action": "ask_user", "text": "xxx"} # you can ask user for more '
            "information to complete the task.",
        ),
        "double_click": Verb(
            DoubleTap, ("coordinate",), '{"action": "double_click", "coordinate": [x, y]}'
        ),
    }
    """Verbs, each described by its line in the prompt."""
    buttons: ClassVar[Mapping[str, str]] = {name.lower(): key for name, key in BUTTONS.items()}
    statuses: ClassVar[tuple[str, str]] = ("success", "fail")
    wait_s: ClassVar[float] = 1.0
    history: ClassVar[str] = "screens:3"

    def __init__(
        self,
        outside: str = "refuse",
        thinking: bool = True,
        ask_user: bool = True,
        apps: Sequence[str] = (),
    ) -> None:
        super().__init__(outside)
        if isinstance(apps, str):
            raise ConfigError(f"env.dialect_kwargs.apps must be a list of names, got {apps!r}")
        self._thinking, self._ask_user, self._apps = thinking, ask_user, tuple(apps)

    def scale(self, screen: Screen) -> CoordinateScale:
        return CoordinateScale(sides=(999, 999), clamp=self.clamp)

    def points(self, name: str, given: Mapping[str, Any], screen: Screen) -> list[Point]:
        """See VerbDialect.points; a `swipe` by direction stops at the edge of the screen."""
        if name != "swipe":
            return super().points(name, given, screen)
        label, x, y = self.label(name), 0.5, 0.5
        direction = reply_values.one_of(given["direction"], f"{label}: direction", _REACH)
        if "coordinate" in given:
            numbers = self.point(given["coordinate"], label, "coordinate")
            x, y = self.scale(screen).position(numbers, label)
        # Both horizontal and vertical distances are in screen widths.
        width, height = screen.size
        x2, y2 = x + _REACH[direction][0], y + _REACH[direction][1] * width / height
        return [(x, y), (min(max(x2, 0.0), 1.0), min(max(y2, 0.0), 1.0))]

    def framed(self, name: str, given: Mapping[str, Any], thought: str) -> str:
        if not self._thinking:
            return tool_call(name, given)
        return f"<thinking>\n{thought}\n</thinking>\n{tool_call(name, given)}"

    def system(self, task: str, screen: Screen, accepts: ActionTypes) -> str:
        thinks = "the thinking process in <thinking> </thinking> tags, and " * self._thinking
        frame = "<thinking>\n...\n</thinking>\n" * self._thinking
        # MAI-UI's shorter prompt has neither of these actions.
        extras = (AskUser, DoubleTap) if not self._ask_user else ()
        verbs = self.accepted([kind for kind in accepts if kind not in extras]).values()
        space = "\n".join(verb.description for verb in verbs)
        return (
            "You are a GUI agent. You are given a task and your action history, with screenshots. "
            "You need to perform the next action to complete the task.\n\n"
            f"## Output Format\nFor each function call, return {thinks}a json object with function "
            "name and arguments within <tool_call></tool_call> XML tags:\n```\n"
            f"{frame}<tool_call>\n"
            '{"name": "mobile_use", "arguments": <args-json-object>}\n</tool_call>\n```\n\n'
            f"## Action Space\n\n{space}\n\n\n## Note\n{self._notes(accepts)}"
        )

    def _notes(self, accepts: ActionTypes) -> str:
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
        self, task: str, screen: Screen, accepts: ActionTypes, steps: Sequence[str], shown: str
    ) -> str:
        return f"{task}{shown}"
