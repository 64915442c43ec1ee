"""The function `mobile_use` of Qwen's models and of those derived from them.

A reply contains one call, `<tool_call>{"name": "mobile_use", "arguments": {...}}</tool_call>`; its
argument `action` is one of a few verbs. Models differ in their verbs, prompts and coordinates.
"""

import json
import re
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from agentrl.actions import reply_values
from agentrl.actions.dialect import Dialect, Screen
from agentrl.actions.mobile_use_schema import BUTTONS, TOOL, VERBS, Verb
from agentrl.actions.reply_values import CoordinateScale
from agentrl.actions.screen_actions import (
    AnswerUser,
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

LONG_PRESS_S = 2
"""What `long_press` is spelled with."""


class MobileUse(Dialect):
    """A dialect whose replies call `mobile_use`; its models differ in `verbs`, prompt and scale."""

    verbs: ClassVar[Mapping[str, Verb]] = VERBS
    history: ClassVar[str] = "window:1"
    stop: ClassVar[tuple[str, ...]] = ("</tool_call>",)

    def __init_subclass__(cls) -> None:
        cls.says = tuple(dict.fromkeys(verb.does for verb in cls.verbs.values()))

    @abstractmethod
    def scale(self, screen: Screen) -> CoordinateScale:
        """The numbers of its coordinates."""

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
        "answer": AnswerUser,
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
        case AnswerUser(text):
            return {"action": "answer", "text": text}
        case AskUser(text):
            return {"action": "interact", "text": text}
        case Done(status):
            return {"action": "terminate", "status": status or "success"}
    raise ActionError(f"this dialect cannot say {action}")
