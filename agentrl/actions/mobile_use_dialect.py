"""The function `mobile_use` of Qwen's models and their derivatives.

A reply contains one call, `<tool_call>{"name": "mobile_use", "arguments": {...}}</tool_call>`,
whose argument `action` is one of a few verbs. Models differ in verbs, prompts and coordinates.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agentrl.actions import reply_values
from agentrl.actions.dialect import Screen
from agentrl.actions.screen_actions import (
    AnswerUser,
    AskUser,
    Done,
    Key,
    LongPress,
    OpenApp,
    Point,
    ScreenAction,
    Swipe,
    Tap,
    Type,
    Wait,
)
from agentrl.actions.verb_dialect import Verb, VerbDialect
from agentrl.errors import ActionError
from agentrl.text.reply_tags import tag_content

TOOL = "mobile_use"
LONG_PRESS_S = 2
"""The `time` argument written for `long_press`."""
BUTTONS = {"Back": "BACK", "Home": "HOME", "Menu": "MENU", "Enter": "ENTER"}
"""System buttons and their keys."""
_POINT = "(x, y): The x (pixels from the left edge) and y (pixels from the top edge) coordinates to"
VERBS: Mapping[str, Verb] = {
    "key": Verb(
        Key,
        ("text",),
        "Perform a key event on the mobile device.\n"
        "    - This supports adb's `keyevent` syntax.\n"
        '    - Examples: "volume_up", "volume_down", "power", "camera", "clear".',
    ),
    "click": Verb(Tap, ("coordinate",), "Click the point on the screen with coordinate (x, y)."),
    "long_press": Verb(
        LongPress,
        ("coordinate", "time"),
        "Press the point on the screen with coordinate (x, y) for specified seconds.",
        may_lack=("time",),
    ),
    "swipe": Verb(
        Swipe,
        ("coordinate", "coordinate2"),
        "Swipe from the starting point with coordinate (x, y) to the end point with "
        "coordinates2 (x2, y2).",
    ),
    "type": Verb(Type, ("text",), "Input the specified text into the activated input box."),
    "system_button": Verb(Key, ("button",), "Press the system button."),
    "open": Verb(OpenApp, ("text",), "Open an app on the device."),
    "wait": Verb(Wait, ("time",), "Wait specified seconds for the change to happen."),
    "terminate": Verb(
        Done, ("status",), "Terminate the current task and report its completion status."
    ),
}
"""The verbs of Qwen2.5-VL."""
ANSWER = Verb(AnswerUser, ("text",), "Output the answer.")
INTERACT = Verb(AskUser, ("text",), "Resolve the blocking window by interacting with the user.")
# Start of the description, and schema, of each argument.
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


class MobileUse(VerbDialect):
    """Base of dialects that call `mobile_use`; subclasses set `verbs`, prompt and scale."""

    verbs: ClassVar[Mapping[str, Verb]] = VERBS
    buttons: ClassVar[Mapping[str, str]] = BUTTONS
    """System buttons and their keys."""
    statuses: ClassVar[tuple[str, str]] = ("success", "failure")
    wait_s: ClassVar[float] = 2.0
    history: ClassVar[str] = "window:1"
    stop: ClassVar[tuple[str, ...]] = ("</tool_call>",)
    action_tag: ClassVar[str | None] = "tool_call"

    def label(self, name: str) -> str:
        return f"action={name}"

    def parse(self, reply: str, screen: Screen) -> ScreenAction:
        text = tag_content(reply, "tool_call")
        call = reply_values.json_object(text, f"a call of {TOOL} as JSON")
        reply_values.check_keys("the call", call, ("name", "arguments"))
        reply_values.one_of(call["name"], "name", (TOOL,))
        given = call["arguments"]
        # Some models write the arguments as a JSON string.
        if isinstance(given, str):
            given = reply_values.json_object(given, "the arguments of a call as JSON")
        if not isinstance(given, dict):
            raise ActionError(f"arguments: {given!r:.40} is not an object")
        verb = reply_values.one_of(given.pop("action", None), "action", self.verbs)
        return self.read(verb, given, screen)

    def text(self, name: str, given: Mapping[str, Any]) -> str:
        """See VerbDialect.text; for a key, return its name."""
        if self.verbs[name].kind is not Key:
            return super().text(name, given)
        if "button" in given:
            where = f"{self.label(name)}: button"
            return self.buttons[reply_values.one_of(given["button"], where, self.buttons)]
        return reply_values.key_name(given["text"], f"{self.label(name)}: text")

    def points(self, name: str, given: Mapping[str, Any], screen: Screen) -> list[Point]:
        # Check the time but ignore it, because the phone determines how long a press lasts.
        self.seconds(name, given)
        return super().points(name, given, screen)

    def written(self, action: ScreenAction, screen: Screen) -> tuple[str, dict[str, Any]]:
        if isinstance(action, Key):
            # `key` is only for keys that are not system buttons.
            button = {key: button for button, key in self.buttons.items()}.get(action.name)
            if button is not None:
                return "system_button", {"button": button}
            if "key" not in self.verbs:
                raise ActionError(f"{type(self).__name__} has no key {action.name}")
            return "key", {"text": action.name.lower()}
        name, given = super().written(action, screen)
        if "time" in self.verbs[name].takes:
            given["time"] = action.seconds if isinstance(action, Wait) else LONG_PRESS_S
        return name, given

    def framed(self, name: str, given: Mapping[str, Any], thought: str) -> str:
        return f"{thought}\n{tool_call(name, given)}" if thought else tool_call(name, given)


def tool_call(name: str, given: Mapping[str, Any]) -> str:
    """Write a call of a verb with its arguments, in tags."""
    call = {"name": TOOL, "arguments": {"action": name, **given}}
    text = json.dumps(call, ensure_ascii=False)
    # Typed text must not contain the closing tag.
    return "<tool_call>\n" + text.replace("<", "\\u003c") + "\n</tool_call>"


def numbered_steps(steps: Sequence[str], form: str, separator: str) -> str:
    """List earlier replies as text, each by its `Action:` line, or else its call.

    Args:
        steps: the replies.
        form: format of a step, with `{number}` and `{step}`.
        separator: text between steps.
    """

    def said(reply: str) -> str:
        head = reply.partition("<tool_call>")[0]
        found = re.search(r"^Action: *(.+)$", head, re.MULTILINE)
        if found is not None and (line := found[1].rstrip(" ").strip('"')):
            return line
        # Replies without an action are part of the history too.
        try:
            return tag_content(reply, "tool_call").strip()
        except ActionError:
            return reply.strip().replace("\n", " ")

    return separator.join(
        form.format(number=number, step=said(reply)) for number, reply in enumerate(steps, 1)
    )


def tools_prompt(
    verbs: Mapping[str, Verb], size: tuple[int, int], *, with_labels: bool = True
) -> str:
    """Write the system message's description of the tool, as qwen-agent does."""
    description = (
        "Use a touchscreen to interact with a mobile device, and take screenshots.\n"
        "* This is an interface to a mobile device with touchscreen. You can perform actions like "
        "clicking, typing, swiping, etc.\n"
        "* Some applications may take time to start or process actions, so you may need to wait "
        "and take successive screenshots to see the results of your actions.\n"
        f"* The screen's resolution is {size[0]}x{size[1]}.\n"
        "* Make sure to click any buttons, links, icons, etc with the cursor tip in the center of "
        "the element. Don't click boxes on their edges unless asked."
    )
    schema = {"name": TOOL, "description": description, "parameters": _parameters(verbs)}
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
            listed = " and ".join(users)
            if len(users) > 2:
                listed = f"{', '.join(users[:-1])}, and {users[-1]}"
            # The published prompt that models were trained on lacks this period.
            stop = "" if argument == "button" else "."
            description = f"{beginning}Required only by {listed}{stop}"
            properties[argument] = {"description": description, **schema}
    return {"properties": properties, "required": ["action"], "type": "object"}
