"""AutoGLM: `<think>...</think><answer>do(action="Tap", element=[x,y])</answer>`, 0 to 999."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from agentrl.actions import reply_values
from agentrl.actions.dialect import Dialect, Screen
from agentrl.actions.keyword_calls import Value, decode_text, encode_text, parse_call
from agentrl.actions.reply_values import CoordinateScale
from agentrl.actions.screen_actions import (
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
from agentrl.errors import ActionError
from agentrl.text import quoted, tag_content

_WAIT = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)\s*(?:seconds?|s)?", re.ASCII)
_TYPED = re.compile(
    r'(?:do\(action="(?:Type|Type_Name)", ?text=|finish\(message=)"(.*)"\)', re.DOTALL
)
_NEXT_CALL = re.compile(r'"\)\s*(?:do|finish)\(')
_LITERAL = re.compile(r'(?:[^"\\\n\r]|\\.)*', re.DOTALL)
_POINT = "The element is a list of 2 integers, representing the coordinates of the {name} point."
_SPACE: tuple[tuple[str, type[Any], str, str], ...] = (
    (
        "Tap",
        Tap,
        f"Perform a tap action on a specified screen area. {_POINT.format(name='tap')}",
        'do(action="Tap", element=[x,y])',
    ),
    (
        "Type",
        Type,
        "Enter text into the currently focused input field.",
        'do(action="Type", text="Hello World")',
    ),
    (
        "Swipe",
        Swipe,
        "Perform a swipe action with start point and end point.",
        'do(action="Swipe", start=[x1,y1], end=[x2,y2])',
    ),
    (
        "Long Press",
        LongPress,
        "Perform a long press action on a specified screen area.\n  You can add the element to the "
        f"action to specify the long press area. {_POINT.format(name='long press')}",
        'do(action="Long Press", element=[x,y])',
    ),
    (
        "Launch",
        OpenApp,
        "Launch an app. Try to use launch action when you need to launch an app. Check the "
        "instruction to choose the right app before you use this action.",
        'do(action="Launch", app="Settings")',
    ),
    (
        "Back",
        Key,
        "Press the Back button to navigate to the previous screen.",
        'do(action="Back")',
    ),
    ("Home", Key, "Press the Home button to return to the launcher.", 'do(action="Home")'),
    (
        "Double Tap",
        DoubleTap,
        f"Tap twice on a specified screen area. {_POINT.format(name='tap')}",
        'do(action="Double Tap", element=[x,y])',
    ),
    ("Wait", Wait, "Wait for the page to load.", 'do(action="Wait", duration="x seconds")'),
    (
        "Take_over",
        AskUser,
        "Ask the user to take over, for example to log in.",
        'do(action="Take_over", message="xxx")',
    ),
    (
        "Finish",
        Done,
        "Terminate the program and optionally print a message.",
        'finish(message="Task completed.")',
    ),
)
"""Name, type of action, description and example of each action."""
_POINTS: Mapping[str, type[Any]] = {"Tap": Tap, "Long Press": LongPress, "Double Tap": DoubleTap}
_TEXTS: Mapping[str, tuple[str, type[Any]]] = {
    "Type": ("text", Type),
    "Type_Name": ("text", Type),
    "Launch": ("app", OpenApp),
    "Take_over": ("message", AskUser),
}


class AutoGLM(Dialect):
    r"""The format of zai-org/Open-AutoGLM, `phone_agent/config/prompts_en.py`, of February 2026.

    The prompt also lists the actions that only the Chinese prompt has. Of earlier turns the
    conversation keeps the text, without screens. A text with quotes may be written with or without
    backslashes before them: Open-AutoGLM's parser takes all up to the last quote.

    Args:
        outside: whether a position outside the screen is refused or moved to its edge (`clamp`).
    """

    says: ClassVar[tuple[type[Any], ...]] = tuple(dict.fromkeys(kind for _, kind, _, _ in _SPACE))
    history: ClassVar[str] = "screens:1"
    stop: ClassVar[tuple[str, ...]] = ("</answer>",)

    def parse(self, reply: str, screen: Screen) -> ScreenAction:
        """See Dialect.parse."""
        text = _answer(reply)
        typed = _TYPED.fullmatch(text)
        if typed is not None and not _NEXT_CALL.search(typed[1]):
            said = _decoded(typed[1])
            if text.startswith("finish"):
                return Done(message=reply_values.typed_text(said, "finish"))
            return Type(reply_values.typed_text(said, "Type: text"))
        call, given = parse_call(text)
        reply_values.one_of(call, "the answer", ("do", "finish"))
        if call == "finish":
            reply_values.check_keys(call, given, (), ("message",))
            return Done(message=reply_values.typed_text(given.get("message", ""), call))
        known = [name for name, *_ in _SPACE if name != "Finish"]
        action = reply_values.one_of(given.pop("action", None), "action", [*known, "Type_Name"])
        return self._action(action, given)

    def _action(self, name: str, given: dict[str, Value]) -> ScreenAction:
        scale = CoordinateScale(sides=(1000, 1000), clamp=self.clamp)

        def at(key: str) -> tuple[float, float]:
            return scale.position(reply_values.point(given[key], f"{name}: {key}"), name)

        if name in _POINTS:
            reply_values.check_keys(name, given, ("element",), ("message",))
            touch: ScreenAction = _POINTS[name](*at("element"))
            return touch
        if name == "Swipe":
            reply_values.check_keys(name, given, ("start", "end"))
            return Swipe(*at("start"), *at("end"))
        if name in _TEXTS:
            key, kind = _TEXTS[name]
            reply_values.check_keys(name, given, (key,))
            said: ScreenAction = kind(reply_values.typed_text(given[key], f"{name}: {key}"))
            return said
        if name == "Wait":
            reply_values.check_keys(name, given, ("duration",))
            return Wait(_seconds(given["duration"]))
        reply_values.check_keys(name, given, ())
        return Key(name.upper())

    def spell(self, action: ScreenAction, screen: Screen, thought: str = "") -> str:
        """See Dialect.spell."""
        return f"<think>{thought}</think>\n<answer>{self._call(action)}</answer>"

    def _call(self, action: ScreenAction) -> str:
        def at(x: float, y: float) -> str:
            scale = CoordinateScale(sides=(1000, 1000), last=(999, 999))
            across, down = scale.numbers(x, y)
            return f"[{across},{down}]"

        match action:
            case Tap(x, y):
                return f'do(action="Tap", element={at(x, y)})'
            case LongPress(x, y):
                return f'do(action="Long Press", element={at(x, y)})'
            case DoubleTap(x, y):
                return f'do(action="Double Tap", element={at(x, y)})'
            case Swipe(x1, y1, x2, y2):
                return f'do(action="Swipe", start={at(x1, y1)}, end={at(x2, y2)})'
            case Type(text):
                return f'do(action="Type", text="{_encoded(text)}")'
            case OpenApp(name):
                return f'do(action="Launch", app="{_encoded(name)}")'
            case AskUser(text):
                return f'do(action="Take_over", message="{_encoded(text)}")'
            case Wait(seconds):
                return f'do(action="Wait", duration="{seconds:g} seconds")'
            case Done(_, message):
                return f'finish(message="{_encoded(message)}")'
            case Key("BACK" | "HOME" as name):
                return f'do(action="{name.capitalize()}")'
        raise ActionError(f"autoglm cannot say {action}")

    def system(self, task: str, screen: Screen, accepts: Collection[type[Any]]) -> str:
        """The setup, and each accepted action with an example."""
        actions = "\n".join(
            f"- **{name}**\n  {text}\n  **Example{'s' * (name == 'Swipe')}**:\n  <answer>\n"
            f"  {example}\n  </answer>"
            for name, kind, text, example in _SPACE
            if kind in accepts
        )
        return f"{_SETUP}{actions}\n{_REMEMBER}"

    def opening(
        self,
        task: str,
        screen: Screen,
        accepts: Collection[type[Any]],
        steps: Sequence[str],
        shown: str,
    ) -> str:
        """The screen, then the task."""
        return f"{shown}{task}"

    def following(self, shown: str) -> str:
        """The screen, and the title that stays when it is left out."""
        return f"{shown}** Screen Info **"


_SETUP = """
# Setup
You are a professional Android operation agent assistant that can fulfill the user's high-level \
instructions. Given a screenshot of the Android interface at each step, you first analyze the \
situation, then plan the best course of action using Python-style pseudo-code.

# More details about the code
Your response format must be structured as follows:

Think first: Use <think>...</think> to analyze the current screen, identify key elements, and \
determine the most efficient action.
Provide the action: Use <answer>...</answer> to return a single line of pseudo-code representing \
the operation.

Your output should STRICTLY follow the format:
<think>
[Your thought]
</think>
<answer>
[Your operation code]
</answer>

"""
_REMEMBER = """

REMEMBER:
- Think before you act: Always analyze the current UI and the best course of action before \
executing any step, and output in <think> part.
- Only ONE LINE of action in <answer> part per response: Each step must contain exactly one line \
of executable code.
- Generate execution code strictly according to format requirements.
"""


def _answer(reply: str) -> str:
    """The call in a reply, which may lack the tags around it."""
    if "<answer>" in reply or "</answer>" in reply:
        return tag_content(reply, "answer").strip()
    return reply.rpartition("</think>")[2].strip()


def _decoded(inside: str) -> str:
    """The text between the outer quotes: a literal, or anything else as it is."""
    return decode_text(inside) if _LITERAL.fullmatch(inside) else inside


def _encoded(text: str) -> str:
    # A text must not contain the closing tag.
    return encode_text(text, '"').replace("<", "\\x3c")


def _seconds(value: Value) -> float:
    found = _WAIT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ActionError(f'Wait: {quoted(value)} is not a duration such as "2 seconds"')
    return reply_values.seconds(float(found[1]), "Wait: duration")
