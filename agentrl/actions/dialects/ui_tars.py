"""UI-TARS: `Thought:` and `Action:` lines; boxes from 0 to 1000."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from agentrl.actions import reply_values
from agentrl.actions.dialect import Dialect, Screen
from agentrl.actions.keyword_calls import (
    Value,
    decode_text,
    encode_text,
    numbers_in,
    parse_call,
)
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
from agentrl.errors import ActionError
from agentrl.text import quoted

_ACTION = re.compile(r"^Action: *", re.MULTILINE)
_TEXT_CALL = re.compile(r"\s*(type|finished)\(content='(.*)'\)\s*", re.DOTALL)
_OPEN_END = re.compile(r"(?<!\\)(?:\\\\)*(?:'\s*\)|\\\Z)")
"""The end of a text that is not the end of the call, or a backslash before its last quote."""
_BOX = re.compile(r"\(?(.*?)\)?", re.DOTALL)
_MARKUP = re.compile(r"<\|box_(?:start|end)\|>|</?(?:point|bbox)>")
_KEYS = {"press_home": "HOME", "press_back": "BACK"}
_REACH = 0.4
"""How far a scroll by direction moves the finger, in heights or widths of the screen."""
_DIRECTIONS = {"up": (0.0, 1.0), "down": (0.0, -1.0), "left": (1.0, 0.0), "right": (-1.0, 0.0)}
"""How the finger moves to show more on that side: against the direction."""


class UITars(Dialect):
    r"""The format of bytedance/UI-TARS, `README_v1.md`: the mobile prompt.

    A `scroll` from one box to another is a swipe of the finger. The conversation keeps all replies
    and the last five screens. `<|box_start|>` and `<|box_end|>` around boxes may be left out, as
    they are special tokens of the model.

    Args:
        outside: whether a position outside the screen is refused or moved to its edge (`clamp`).
        language: of the thoughts, as the prompt states it.
    """

    says: ClassVar[tuple[type[Any], ...]] = (Tap, LongPress, Type, Swipe, Key, Done)
    history: ClassVar[str] = "screens:5"
    space: ClassVar[tuple[tuple[type[Any], str], ...]] = (
        (Tap, "click(start_box='<|box_start|>(x1,y1)<|box_end|>')"),
        (LongPress, "long_press(start_box='<|box_start|>(x1,y1)<|box_end|>', time='')"),
        (Type, "type(content='')"),
        (
            Swipe,
            "scroll(start_box='<|box_start|>(x1,y1)<|box_end|>', "
            "end_box='<|box_start|>(x3,y3)<|box_end|>')",
        ),
        (Key, "press_home()"),
        (Key, "press_back()"),
        (
            Done,
            "finished(content='') # Submit the task regardless of whether it succeeds or fails.",
        ),
    )
    """The lines of the action space, and the type of action that each stands for."""

    def __init__(self, outside: str = "refuse", language: str = "English") -> None:
        super().__init__(outside)
        self._language = language

    def scale(self, screen: Screen) -> CoordinateScale:
        """0 to 1000."""
        return CoordinateScale(sides=(1000, 1000), clamp=self.clamp)

    def parse(self, reply: str, screen: Screen) -> ScreenAction:
        """See Dialect.parse."""
        name, given = _call_in(reply)
        at = self._reader(name, given, screen)
        if name in _KEYS:
            reply_values.check_keys(name, given, ())
            return Key(_KEYS[name])
        if name == "click":
            return Tap(*at("start_box"))
        if name == "long_press":
            return LongPress(*at("start_box", "time"))
        if name == "drag" or "end_box" in given:
            return Swipe(*at("start_box", "end_box"), *at("end_box", "start_box"))
        if name == "scroll":
            return self._scroll(at("start_box", "direction"), given)
        if name == "open_app":
            reply_values.check_keys(name, given, ("app_name",))
            return OpenApp(reply_values.typed_text(given["app_name"], name))
        reply_values.check_keys(name, given, (), ("content",))
        text = reply_values.typed_text(given.get("content", ""), name)
        return Type(text) if name == "type" else Done(message=text)

    def _reader(self, name: str, given: Mapping[str, Value], screen: Screen) -> Any:
        known = {line.partition("(")[0] for _, line in self.space}
        reply_values.one_of(name, "Action", sorted(known))

        def at(box: str, *others: str) -> tuple[float, float]:
            required = [box, *(key for key in others if key != "time")]
            reply_values.check_keys(name, given, required, others)
            return self.scale(screen).position(_center(given[box], name), name)

        return at

    def _scroll(self, start: tuple[float, float], given: Mapping[str, Value]) -> Swipe:
        direction = reply_values.one_of(given["direction"], "scroll: direction", _DIRECTIONS)
        across, down = _DIRECTIONS[direction]
        x, y = start[0] + _REACH * across, start[1] + _REACH * down
        return Swipe(*start, min(max(x, 0.0), 1.0), min(max(y, 0.0), 1.0))

    def box(self, x: float, y: float, screen: Screen) -> str:
        """A point as it is written."""
        across, down = self.scale(screen).numbers(x, y)
        return f"({across},{down})"

    def spell(self, action: ScreenAction, screen: Screen, thought: str = "") -> str:
        """See Dialect.spell."""
        if type(action) not in self.says:
            raise ActionError(f"{type(self).__name__} cannot say {action}")
        said = self.spell_call(action, screen)
        return f"Thought: {thought}\nAction: {said}" if thought else f"Action: {said}"

    def spell_call(self, action: ScreenAction, screen: Screen) -> str:
        """The call that performs an action."""
        match action:
            case Tap(x, y):
                return f"click(start_box='{self.box(x, y, screen)}')"
            case LongPress(x, y):
                return f"long_press(start_box='{self.box(x, y, screen)}')"
            case Swipe(x1, y1, x2, y2):
                start, end = self.box(x1, y1, screen), self.box(x2, y2, screen)
                return f"scroll(start_box='{start}', end_box='{end}')"
            case Type(text):
                return f"type(content='{encode_text(text, chr(39))}')"
            case Key(name) if name in _KEYS.values():
                return f"press_{name.lower()}()"
            case OpenApp(name):
                return f"open_app(app_name='{encode_text(name, chr(39))}')"
            case Done(_, message):
                return f"finished(content='{encode_text(message, chr(39))}')"
        raise ActionError(f"{type(self).__name__} cannot say {action}")

    def system(self, task: str, screen: Screen, accepts: Collection[type[Any]]) -> str:
        """Return None: the first message holds the prompt."""
        return ""

    def opening(
        self,
        task: str,
        screen: Screen,
        accepts: Collection[type[Any]],
        steps: Sequence[str],
        shown: str,
    ) -> str:
        """The prompt, the task, and the screen."""
        return f"{self.prompt(accepts)}{task}\n{shown}"

    def prompt(self, accepts: Collection[type[Any]]) -> str:
        """All before the task."""
        space = "\n".join(line for kind, line in self.space if kind in accepts)
        return (
            "You are a GUI agent. You are given a task and your action history, with screenshots. "
            "You need to perform the next action to complete the task. \n\n"
            "## Output Format\n```\\nThought: ...\nAction: ...\\n```\n\n"
            f"## Action Space\n{space}\n\n## Note\n- Use {self._language} in `Thought` part.\n\n"
            "- Write a small plan and finally summarize your next action (with its target element) "
            "in one sentence in `Thought` part.\n\n## User Instruction\n"
        )


def _call_in(reply: str) -> tuple[str, dict[str, Value]]:
    """The only call in a reply, its arguments named as in the first version."""
    pieces = _ACTION.split(reply)
    if len(pieces) != 2:
        count = len(pieces) - 1 or "no"
        raise ActionError(f"{count} lines of the reply start with `Action:`; expected exactly one")
    text = pieces[1].strip()
    typed = _TEXT_CALL.fullmatch(text)
    if typed is not None:  # such models often leave out the backslash before a quote
        if _OPEN_END.search(typed[2]):
            raise ActionError(f"{quoted(text)} does not end with its only text")
        return typed[1], {"content": decode_text(typed[2])}
    name, given = parse_call(text)
    renamed = {"point": "start_box", "start_point": "start_box", "end_point": "end_box"}
    return name, {renamed.get(key, key): value for key, value in given.items()}


def _center(value: Value, name: str) -> tuple[float, float]:
    """The point in a box, or the middle of a box with four numbers."""
    inside = _BOX.fullmatch(_MARKUP.sub("", value).strip()) if isinstance(value, str) else None
    if inside is None:
        raise ActionError(f"{name}: {quoted(value)} is not a point")
    numbers = numbers_in(inside[1])
    if len(numbers) == 4:
        return (numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2
    if len(numbers) != 2:
        raise ActionError(f"{name}: {quoted(value)} is not a point")
    return numbers[0], numbers[1]
