"""The actions of `mobile_use`, and the prompt that describes the function to a model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.actions.screen_actions import (
    AnswerUser,
    AskUser,
    Done,
    Key,
    LongPress,
    OpenApp,
    Swipe,
    Tap,
    Type,
    Wait,
)

TOOL = "mobile_use"
BUTTONS = {"Back": "BACK", "Home": "HOME", "Menu": "MENU", "Enter": "ENTER"}
"""System buttons and their keys."""
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
    """Names of optional arguments, a subset of `takes`."""


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
ANSWER = Verb(does=AnswerUser, takes=("text",), description="Output the answer.")
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
