"""AutoGLM: `<think>...</think><answer>do(action="Tap", element=[x,y])</answer>`, 0 to 999."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agentrl.actions import reply_values
from agentrl.actions.dialect import ActionTypes, Screen
from agentrl.actions.keyword_calls import decode_text, encode_text, parse_call
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
from agentrl.actions.verb_dialect import Verb, VerbDialect
from agentrl.errors import ActionError
from agentrl.text.formatting import quoted
from agentrl.text.reply_tags import tag_content

_WAIT = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)\s*(?:seconds?|s)?", re.ASCII)
_TYPED = re.compile(
    r'(?:do\(action="(?:Type|Type_Name)", ?text=|finish\(message=)"(.*)"\)', re.DOTALL
)
_NEXT_CALL = re.compile(r'"\)\s*(?:do|finish)\(')
_LITERAL = re.compile(r'(?:[^"\\\n\r]|\\.)*', re.DOTALL)
# The verb written as a separate function, not as an action of `do`.
_FINISH = "Finish"
_POINT = "The element is a list of 2 integers, representing the coordinates of the {name} point."


def _about(text: str, example: str, title: str = "Example") -> str:
    """Format the description of a verb with an example, as in the prompt."""
    return f"{text}\n  **{title}**:\n  <answer>\n  {example}\n  </answer>"


_VERBS: Mapping[str, Verb] = {
    "Tap": Verb(
        Tap,
        ("element", "message"),
        _about(
            f"Perform a tap action on a specified screen area. {_POINT.format(name='tap')}",
            'do(action="Tap", element=[x,y])',
        ),
        may_lack=("message",),
    ),
    "Type": Verb(
        Type,
        ("text",),
        _about(
            "Enter text into the currently focused input field.",
            'do(action="Type", text="Hello World")',
        ),
    ),
    "Swipe": Verb(
        Swipe,
        ("start", "end"),
        _about(
            "Perform a swipe action with start point and end point.",
            'do(action="Swipe", start=[x1,y1], end=[x2,y2])',
            "Examples",
        ),
    ),
    "Long Press": Verb(
        LongPress,
        ("element", "message"),
        _about(
            "Perform a long press action on a specified screen area.\n  You can add the element to "
            "the action to specify the long press area. "
            f"{_POINT.format(name='long press')}",
            'do(action="Long Press", element=[x,y])',
        ),
        may_lack=("message",),
    ),
    "Launch": Verb(
        OpenApp,
        ("app",),
        _about(
            "Launch an app. Try to use launch action when you need to launch an app. Check the "
            "instruction to choose the right app before you use this action.",
            'do(action="Launch", app="Settings")',
        ),
    ),
    "Back": Verb(
        Key("BACK"),
        (),
        _about("Press the Back button to navigate to the previous screen.", 'do(action="Back")'),
    ),
    "Home": Verb(
        Key("HOME"),
        (),
        _about("Press the Home button to return to the launcher.", 'do(action="Home")'),
    ),
    "Double Tap": Verb(
        DoubleTap,
        ("element", "message"),
        _about(
            f"Tap twice on a specified screen area. {_POINT.format(name='tap')}",
            'do(action="Double Tap", element=[x,y])',
        ),
        may_lack=("message",),
    ),
    "Wait": Verb(
        Wait,
        ("duration",),
        _about("Wait for the page to load.", 'do(action="Wait", duration="x seconds")'),
    ),
    "Take_over": Verb(
        AskUser,
        ("message",),
        _about(
            "Ask the user to take over, for example to log in.",
            'do(action="Take_over", message="xxx")',
        ),
    ),
    _FINISH: Verb(
        Done,
        ("message",),
        _about(
            "Terminate the program and optionally print a message.",
            'finish(message="Task completed.")',
        ),
        may_lack=("message",),
    ),
    "Type_Name": Verb(Type, ("text",)),
}


class AutoGLM(VerbDialect):
    r"""The format of zai-org/Open-AutoGLM, `phone_agent/config/prompts_en.py`, of February 2026.

    The prompt also lists actions that only the Chinese prompt has. The conversation keeps the text
    of earlier turns, without screens. Quotes inside typed text may be written with or without
    backslashes, because Open-AutoGLM's parser takes everything up to the last quote.

    Args:
        outside: `refuse` rejects a position outside the screen, `clamp` moves it to the edge.
    """

    verbs: ClassVar[Mapping[str, Verb]] = _VERBS
    history: ClassVar[str] = "screens:1"
    stop: ClassVar[tuple[str, ...]] = ("</answer>",)

    def scale(self, screen: Screen) -> CoordinateScale:
        """Return the scale for parsing, 0 to 1000; 999 is the largest number written."""
        return CoordinateScale(sides=(1000, 1000), clamp=self.clamp)

    def parse(self, reply: str, screen: Screen) -> ScreenAction:
        if "<answer>" in reply or "</answer>" in reply:
            text = tag_content(reply, "answer").strip()
        # Open-AutoGLM also finds the call without the tags.
        else:
            text = reply.rpartition("</think>")[2].strip()
        # Open-AutoGLM takes typed text up to the last quote without parsing it.
        typed = _TYPED.fullmatch(text)
        if typed is not None and not _NEXT_CALL.search(typed[1]):
            said = decode_text(typed[1]) if _LITERAL.fullmatch(typed[1]) else typed[1]
            if text.startswith("finish"):
                return Done(message=reply_values.typed_text(said, "finish"))
            return Type(reply_values.typed_text(said, "Type: text"))
        call, given = parse_call(text)
        if reply_values.one_of(call, "the answer", ("do", "finish")) == "finish":
            return self.read(_FINISH, given, screen)
        known = [name for name in self.verbs if name != _FINISH]
        name = reply_values.one_of(given.pop("action", None), "action", known)
        return self.read(name, given, screen)

    def label(self, name: str) -> str:
        return "finish" if name == _FINISH else name

    def text(self, name: str, given: Mapping[str, Any]) -> str:
        """See VerbDialect.text; the message of `finish` may be left out."""
        if name == _FINISH:
            return reply_values.typed_text(given.get("message", ""), "finish")
        return super().text(name, given)

    def seconds(self, name: str, given: Mapping[str, Any]) -> float:
        value = given["duration"]
        found = _WAIT.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None:
            raise ActionError(f'Wait: {quoted(value)} is not a duration such as "2 seconds"')
        return reply_values.seconds(float(found[1]), "Wait: duration")

    def written(self, action: ScreenAction, screen: Screen) -> tuple[str, dict[str, Any]]:
        if isinstance(action, Wait):
            return "Wait", {"duration": f"{action.seconds:g} seconds"}
        return super().written(action, screen)

    def written_point(self, x: float, y: float, screen: Screen) -> list[int]:
        return CoordinateScale(sides=(1000, 1000), last=(999, 999)).numbers(x, y)

    def framed(self, name: str, given: Mapping[str, Any], thought: str) -> str:
        arguments = [f'action="{name}"'] if name != _FINISH else []
        for key, value in given.items():
            if isinstance(value, str):
                # The text must not contain the closing tag.
                text = encode_text(value, '"').replace("<", "\\x3c")
                arguments.append(f'{key}="{text}"')
            else:
                arguments.append("{}=[{},{}]".format(key, *value))
        call = f"{'finish' if name == _FINISH else 'do'}({', '.join(arguments)})"
        return f"<think>{thought}</think>\n<answer>{call}</answer>"

    def system(self, task: str, screen: Screen, accepts: ActionTypes) -> str:
        """Write the setup, and each accepted action with an example."""
        verbs = self.accepted(accepts).items()
        actions = "\n".join(f"- **{name}**\n  {verb.description}" for name, verb in verbs)
        return f"{_SETUP}{actions}\n{_REMEMBER}"

    def opening(
        self, task: str, screen: Screen, accepts: ActionTypes, steps: Sequence[str], shown: str
    ) -> str:
        return f"{shown}{task}"

    def following(self, shown: str) -> str:
        """Write the screen and its title; the title stays when the screen is left out."""
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
