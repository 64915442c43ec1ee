"""UI-TARS: `Thought:` and `Action:` lines, with boxes from 0 to 1000."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agentrl.actions import reply_values
from agentrl.actions.dialect import ActionTypes, Screen
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
    Point,
    ScreenAction,
    Swipe,
    Tap,
    Type,
)
from agentrl.actions.verb_dialect import Verb, VerbDialect
from agentrl.errors import ActionError
from agentrl.text.formatting import quoted

_ACTION = re.compile(r"^Action: *", re.MULTILINE)
_TEXT_CALL = re.compile(r"\s*(type|finished)\(content='(.*)'\)\s*", re.DOTALL)
# Matches a quote that ends the text before the end of the call, or a backslash before the last one.
_OPEN_END = re.compile(r"(?<!\\)(?:\\\\)*(?:'\s*\)|\\\Z)")
_BOX = re.compile(r"\(?(.*?)\)?", re.DOTALL)
_MARKUP = re.compile(r"<\|box_(?:start|end)\|>|</?(?:point|bbox)>")
# Distance that a scroll by direction moves the finger, in screen heights or widths.
_REACH = 0.4
# Finger movement that reveals more on the named side, which is against the direction.
_DIRECTIONS = {"up": (0.0, 1.0), "down": (0.0, -1.0), "left": (1.0, 0.0), "right": (-1.0, 0.0)}


class UITars(VerbDialect):
    r"""The format of bytedance/UI-TARS, `README_v1.md`: the mobile prompt.

    A `scroll` from one box to another is a finger swipe. The conversation keeps all replies and the
    last five screens. `<|box_start|>` and `<|box_end|>` around boxes may be missing, because they
    are special tokens of the model.

    Args:
        outside: `refuse` rejects a position outside the screen, `clamp` moves it to the edge.
        language: language of the thoughts, stated in the prompt.
    """

    history: ClassVar[str] = "screens:5"
    verbs: ClassVar[Mapping[str, Verb]] = {
        "click": Verb(Tap, ("start_box",), "click(start_box='<|box_start|>(x1,y1)<|box_end|>')"),
        "long_press": Verb(
            LongPress,
            ("start_box", "time"),
            "long_press(start_box='<|box_start|>(x1,y1)<|box_end|>', time='')",
            may_lack=("time",),
        ),
        "type": Verb(Type, ("content",), "type(content='')", may_lack=("content",)),
        "scroll": Verb(
            Swipe,
            ("start_box", "end_box"),
            "scroll(start_box='<|box_start|>(x1,y1)<|box_end|>', "
            "end_box='<|box_start|>(x3,y3)<|box_end|>')",
        ),
        "press_home": Verb(Key("HOME"), (), "press_home()"),
        "press_back": Verb(Key("BACK"), (), "press_back()"),
        "finished": Verb(
            Done,
            ("content",),
            "finished(content='') # Submit the task regardless of whether it succeeds or fails.",
            may_lack=("content",),
        ),
    }
    """Verbs, each described by its line in the prompt's action space."""

    def __init__(self, outside: str = "refuse", language: str = "English") -> None:
        super().__init__(outside)
        self._language = language

    def scale(self, screen: Screen) -> CoordinateScale:
        return CoordinateScale(sides=(1000, 1000), clamp=self.clamp)

    def parse(self, reply: str, screen: Screen) -> ScreenAction:
        pieces = _ACTION.split(reply)
        if len(pieces) != 2:
            count = len(pieces) - 1 or "no"
            raise ActionError(
                f"{count} lines of the reply start with `Action:`; expected exactly one"
            )
        text, given = pieces[1].strip(), dict[str, Value]()
        # UI-TARS models often leave out the backslash before a quote.
        if (typed := _TEXT_CALL.fullmatch(text)) is not None:
            if _OPEN_END.search(typed[2]):
                raise ActionError(f"{quoted(text)} has an unescaped quote in its text")
            name, given["content"] = typed[1], decode_text(typed[2])
        else:
            name, arguments = parse_call(text)
            # Version 1.5 uses different names for the same arguments.
            renamed = {"point": "start_box", "start_point": "start_box", "end_point": "end_box"}
            given = {renamed.get(key, key): value for key, value in arguments.items()}
        reply_values.one_of(name, "Action", sorted(self.verbs))
        return self.read(name, given, screen)

    def keys(self, name: str, given: Mapping[str, Any]) -> tuple[Sequence[str], Sequence[str]]:
        """See VerbDialect.keys; a `scroll` without an end point has a direction."""
        if name == "scroll" and "end_box" not in given:
            return ("start_box", "direction"), ()
        return super().keys(name, given)

    def points(self, name: str, given: Mapping[str, Any], screen: Screen) -> list[Point]:
        if "direction" not in given:
            return super().points(name, given, screen)
        # To reveal more on the named side, the finger moves against the direction.
        x, y = self.scale(screen).position(_center(given["start_box"], name), name)
        direction = reply_values.one_of(given["direction"], "scroll: direction", _DIRECTIONS)
        across, down = (_REACH * way for way in _DIRECTIONS[direction])
        return [(x, y), (min(max(x + across, 0.0), 1.0), min(max(y + down, 0.0), 1.0))]

    def point(self, value: Any, label: str, key: str) -> Point:
        return _center(value, label)

    def text(self, name: str, given: Mapping[str, Any]) -> str:
        (key,) = self.verbs[name].takes
        return reply_values.typed_text(given.get(key, ""), name)

    def written_point(self, x: float, y: float, screen: Screen) -> str:
        return "({},{})".format(*self.scale(screen).numbers(x, y))

    def framed(self, name: str, given: Mapping[str, Any], thought: str) -> str:
        arguments = (f"{key}='{encode_text(value, chr(39))}'" for key, value in given.items())
        said = f"Action: {name}({', '.join(arguments)})"
        return f"Thought: {thought}\n{said}" if thought else said

    def system(self, task: str, screen: Screen, accepts: ActionTypes) -> str:
        """Return an empty string, because the first message contains the prompt."""
        return ""

    def opening(
        self, task: str, screen: Screen, accepts: ActionTypes, steps: Sequence[str], shown: str
    ) -> str:
        """Write the prompt, the task, and the screen."""
        return f"{self.prompt(accepts)}{task}\n{shown}"

    def prompt(self, accepts: ActionTypes) -> str:
        """Write the text before the task."""
        space = "\n".join(verb.description for verb in self.accepted(accepts).values())
        return (
            "You are a GUI agent. You are given a task and your action history, with screenshots. "
            "You need to perform the next action to complete the task. \n\n"
            "## Output Format\n```\\nThought: ...\nAction: ...\\n```\n\n"
            f"## Action Space\n{space}\n\n## Note\n- Use {self._language} in `Thought` part.\n\n"
            "- Write a small plan and finally summarize your next action (with its target element) "
            "in one sentence in `Thought` part.\n\n## User Instruction\n"
        )


def _center(value: Value, name: str) -> tuple[float, float]:
    """Return the point in a box, or the middle of a box with four numbers."""
    inside = _BOX.fullmatch(_MARKUP.sub("", value).strip()) if isinstance(value, str) else None
    if inside is None:
        raise ActionError(f"{name}: {quoted(value)} is not a point")
    numbers = numbers_in(inside[1])
    if len(numbers) == 4:
        return (numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2
    if len(numbers) != 2:
        raise ActionError(f"{name}: {quoted(value)} is not a point")
    return numbers[0], numbers[1]
