"""The function `mobile_use` of Qwen's models and of those derived from them.

A reply contains one call, `<tool_call>{"name": "mobile_use", "arguments": {...}}</tool_call>`; its
argument `action` is one of a few verbs. Models differ in their verbs, prompts and coordinates.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agentrl.actions import reply_values
from agentrl.actions.dialect import Dialect, Screen
from agentrl.actions.reply_values import CoordinateScale
from agentrl.actions.screen_actions import (
    Answer,
    AskUser,
    Done,
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
from agentrl.text import tag_content

TOOL = "mobile_use"
BUTTONS = {"Back": "BACK", "Home": "HOME", "Menu": "MENU", "Enter": "ENTER"}
"""System buttons and their keys."""
LONG_PRESS_S = 2
"""What `long_press` is spelled with."""
_POINT = "(x, y): The x (pixels from the left edge) and y (pixels from the top edge) coordinates to"


@dataclass(slots=True, kw_only=True, frozen=True)
class Verb:
    """One value of the argument `action`."""

    does: type[Any]
    """The action that it stands for."""
    description: str
    takes: tuple[str, ...] = ()
    """Names of further arguments."""
    may_lack: tuple[str, ...] = ()
    """Those of them that may be left out."""


VERBS: Mapping[str, Verb] = {
    "key": Verb(
        does=Key,
        takes=("text",),
        description="Perform a key event on the mobile device.\n"
        "    - This supports adb's `keyevent` syntax.\n"
        '    - Examples: "volume_up", "volume_down", "power", "camera", "clear".',
    ),
    "click": Verb(
        does=Tap,
        takes=("coordinate",),
        description="Click the point on the screen with coordinate (x, y).",
    ),
    "long_press": Verb(
        does=LongPress,
        takes=("coordinate", "time"),
        may_lack=("time",),
        description="Press the point on the screen with coordinate (x, y) for specified seconds.",
    ),
    "swipe": Verb(
        does=Swipe,
        takes=("coordinate", "coordinate2"),
        description="Swipe from the starting point with coordinate (x, y) to the end point with "
        "coordinates2 (x2, y2).",
    ),
    "type": Verb(
        does=Type,
        takes=("text",),
        description="Input the specified text into the activated input box.",
    ),
    "system_button": Verb(does=Key, takes=("button",), description="Press the system button."),
    "open": Verb(does=OpenApp, takes=("text",), description="Open an app on the device."),
    "wait": Verb(
        does=Wait,
        takes=("time",),
        description="Wait specified seconds for the change to happen.",
    ),
    "terminate": Verb(
        does=Done,
        takes=("status",),
        description="Terminate the current task and report its completion status.",
    ),
}
"""The verbs of Qwen2.5-VL."""
ANSWER = Verb(does=Answer, takes=("text",), description="Output the answer.")
INTERACT = Verb(
    does=AskUser,
    takes=("text",),
    description="Resolve the blocking window by interacting with the user.",
)
_ARGUMENTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "coordinate": (f"{_POINT} move the mouse to. ", {"type": "array"}),
    "coordinate2": (f"{_POINT} move the mouse to. ", {"type": "array"}),
    "text": ("", {"type": "string"}),
    "time": ("The seconds to wait. ", {"type": "number"}),
    "button": (
        "Back means returning to the previous interface, Home means returning to the desktop, Menu "
        "means opening the application background menu, and Enter means pressing the enter. ",
        {"enum": list(BUTTONS), "type": "string"},
    ),
    "status": (
        "The status of the task. ",
        {"type": "string", "enum": ["success", "failure"]},
    ),
}
"""Beginning of the description, and schema, of each argument."""


class MobileUse(Dialect):
    """A dialect whose replies call `mobile_use`; its models differ in `verbs`, prompt and scale."""

    verbs: ClassVar[Mapping[str, Verb]] = VERBS
    history: ClassVar[str] = "window:1"
    stop: ClassVar[tuple[str, ...]] = ("</tool_call>",)

    def __init_subclass__(cls) -> None:
        cls.says = tuple(dict.fromkeys(verb.does for verb in cls.verbs.values()))

    def scale(self, screen: Screen) -> CoordinateScale:
        """The numbers of its coordinates."""
        raise NotImplementedError

    def stated_size(self, screen: Screen) -> tuple[int, int]:
        """The screen's resolution as the prompt states it."""
        raise NotImplementedError

    def parse(self, reply: str, screen: Screen) -> ScreenAction:
        """See Dialect.parse."""
        verb, given = arguments_in(reply, self.verbs)
        name = f"action={verb}"
        takes, may_lack = self.verbs[verb].takes, self.verbs[verb].may_lack
        required = [key for key in takes if key not in may_lack]
        reply_values.check_keys(name, given, required, may_lack)
        scale = self.scale(screen)

        def at(key: str) -> tuple[float, float]:
            return scale.position(reply_values.point(given[key], f"{name}: {key}"), name)

        if verb == "click":
            return Tap(*at("coordinate"))
        if verb == "long_press":
            reply_values.seconds(given.get("time", LONG_PRESS_S), f"{name}: time")
            return LongPress(*at("coordinate"))
        if verb == "swipe":
            return Swipe(*at("coordinate"), *at("coordinate2"))
        return _without_position(verb, given, self.wait_s)

    wait_s: ClassVar[float] = 2.0
    """The pause of a `wait` without time."""

    def spell(self, action: ScreenAction, screen: Screen, thought: str = "") -> str:
        """See Dialect.spell."""
        at = self.scale(screen).numbers
        match action:
            case Tap(x, y):
                said: dict[str, Any] = {"action": "click", "coordinate": at(x, y)}
            case LongPress(x, y):
                said = {"action": "long_press", "coordinate": at(x, y), "time": LONG_PRESS_S}
            case Swipe(x1, y1, x2, y2):
                said = {"action": "swipe", "coordinate": at(x1, y1), "coordinate2": at(x2, y2)}
            case _:
                said = _said_without_position(action, "key" in self.verbs)
        if type(action) not in self.says:
            raise ActionError(f"{type(self).__name__} cannot say {action}")
        return self.framed(said, thought)

    def framed(self, said: Mapping[str, Any], thought: str) -> str:
        """The whole reply: what comes before the call, and the call."""
        return f"{thought}\n{tool_call(said)}" if thought else tool_call(said)

    def accepted(self, accepts: Collection[type[Any]]) -> dict[str, Verb]:
        """The verbs that stand for accepted actions."""
        return {name: verb for name, verb in self.verbs.items() if verb.does in accepts}


def arguments_in(reply: str, verbs: Collection[str]) -> tuple[str, dict[str, Any]]:
    """The verb and the other arguments of the only call in a reply.

    Raises:
        ActionError: there is no such call, or several.
    """
    text = tag_content(reply, "tool_call")
    call = reply_values.json_object(text, f"a call of {TOOL} as JSON")
    reply_values.check_keys("the call", call, ("name", "arguments"))
    reply_values.one_of(call["name"], "name", (TOOL,))
    given = call["arguments"]
    if isinstance(given, str):  # some models write JSON within JSON
        given = reply_values.json_object(given, "the arguments of a call as JSON")
    if not isinstance(given, dict):
        raise ActionError(f"arguments: {given!r:.40} is not an object")
    verb = reply_values.one_of(given.pop("action", None), "action", verbs)
    return verb, given


def tool_call(said: Mapping[str, Any]) -> str:
    """A call with these arguments, in its tags."""
    text = json.dumps({"name": TOOL, "arguments": said}, ensure_ascii=False)
    # Typed text must not contain the closing tag.
    return "<tool_call>\n" + text.replace("<", "\\u003c") + "\n</tool_call>"


def tools_prompt(
    verbs: Mapping[str, Verb], size: tuple[int, int], *, with_labels: bool = True
) -> str:
    """The part of the system message that describes the tool, as qwen-agent writes it.

    Args:
        verbs: the actions to describe.
        size: the stated resolution of the screen.
        with_labels: whether the schema has `name_for_human` and `args_format`.
    """
    schema = {
        "name": TOOL,
        "description": _description(size),
        "parameters": _parameters(verbs),
    }
    if with_labels:
        label = {"name_for_human": TOOL}
        schema = {**label, **schema, "args_format": "Format the arguments as a JSON object."}
    tool = json.dumps({"type": "function", "function": schema}, ensure_ascii=False)
    return (
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
        "provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
        f"{tool}\n</tools>\n\nFor each function call, return a json object with function name and "
        "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    )


def action_line(reply: str) -> str | None:
    """What an earlier reply says after `Action:`; None if there is no such line."""
    found = re.search(r"^Action: *(.+?) *$", reply.partition("<tool_call>")[0], re.MULTILINE)
    return found[1].strip('"') if found else None


def numbered_steps(steps: Sequence[str], form: str, separator: str) -> str:
    """Earlier replies in a text: their `Action:` line, or else their call.

    Args:
        steps: the replies.
        form: of one step, with `{number}` and `{step}`.
        separator: between steps.
    """
    return separator.join(
        form.format(number=number, step=action_line(reply) or _call_text(reply))
        for number, reply in enumerate(steps, 1)
    )


def _call_text(reply: str) -> str:
    try:
        return tag_content(reply, "tool_call").strip()
    except ActionError:
        return reply.strip().replace("\n", " ")


def _without_position(verb: str, given: Mapping[str, Any], wait_s: float) -> ScreenAction:
    name = f"action={verb}"
    if verb == "system_button":
        return Key(BUTTONS[reply_values.one_of(given["button"], f"{name}: button", BUTTONS)])
    if verb == "wait":
        return Wait(reply_values.seconds(given.get("time", wait_s), f"{name}: time"))
    if verb == "terminate":
        known = ("success", "failure")
        return Done(status=reply_values.one_of(given["status"], f"{name}: status", known))
    if verb == "key":
        return Key(reply_values.key_name(given["text"], f"{name}: text"))
    text = reply_values.typed_text(given["text"], f"{name}: text")
    kinds: dict[str, type[Any]] = {
        "type": Type,
        "open": OpenApp,
        "answer": Answer,
        "interact": AskUser,
    }
    action: ScreenAction = kinds[verb](text)
    return action


def _said_without_position(action: ScreenAction, has_keys: bool) -> dict[str, Any]:
    match action:
        case Type(text):
            return {"action": "type", "text": text}
        case Key(name):
            button = {key: button for button, key in BUTTONS.items()}.get(name)
            if button is not None:
                return {"action": "system_button", "button": button}
            if has_keys:
                return {"action": "key", "text": name.lower()}
        case OpenApp(text):
            return {"action": "open", "text": text}
        case Wait(seconds):
            return {"action": "wait", "time": seconds}
        case Answer(text):
            return {"action": "answer", "text": text}
        case AskUser(text):
            return {"action": "interact", "text": text}
        case Done(status):
            return {"action": "terminate", "status": status or "success"}
    raise ActionError(f"this dialect cannot say {action}")


def _description(size: tuple[int, int]) -> str:
    return (
        "Use a touchscreen to interact with a mobile device, and take screenshots.\n"
        "* This is an interface to a mobile device with touchscreen. You can perform actions like "
        "clicking, typing, swiping, etc.\n"
        "* Some applications may take time to start or process actions, so you may need to wait "
        "and take successive screenshots to see the results of your actions.\n"
        f"* The screen's resolution is {size[0]}x{size[1]}.\n"
        "* Make sure to click any buttons, links, icons, etc with the cursor tip in the center of "
        "the element. Don't click boxes on their edges unless asked."
    )


def _parameters(verbs: Mapping[str, Verb]) -> dict[str, Any]:
    actions = "\n".join(f"* `{name}`: {verb.description}" for name, verb in verbs.items())
    properties: dict[str, Any] = {
        "action": {
            "description": f"The action to perform. The available actions are:\n{actions}",
            "enum": list(verbs),
            "type": "string",
        }
    }
    for argument, (beginning, schema) in _ARGUMENTS.items():
        users = [f"`action={name}`" for name, verb in verbs.items() if argument in verb.takes]
        if users:
            description = f"{beginning}Required only by {_listed(users)}{_full_stop(argument)}"

            properties[argument] = {"description": description, **schema}
    return {"properties": properties, "required": ["action"], "type": "object"}


def _full_stop(argument: str) -> str:
    return "" if argument == "button" else "."


def _listed(words: Sequence[str]) -> str:
    if len(words) < 3:
        return " and ".join(words)
    return f"{', '.join(words[:-1])}, and {words[-1]}"
