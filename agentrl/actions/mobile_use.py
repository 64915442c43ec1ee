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
from agentrl.text import tag_content

LONG_PRESS_S = 2
"""The `time` of a spelled `long_press`."""


class MobileUse(Dialect):
    """A dialect whose replies call `mobile_use`; its models differ in `verbs`, prompt and scale."""

    verbs: ClassVar[Mapping[str, Verb]] = VERBS
    """The dialect's verbs by name. If several express one action, the last one is written."""
    buttons: ClassVar[Mapping[str, str]] = BUTTONS
    """System buttons and their keys."""
    statuses: ClassVar[tuple[str, str]] = ("success", "failure")
    """Values of `terminate`'s status for success and for failure."""
    wait_s: ClassVar[float] = 2.0
    """The pause of a `wait` without time."""
    history: ClassVar[str] = "window:1"
    stop: ClassVar[tuple[str, ...]] = ("</tool_call>",)

    def __init_subclass__(cls) -> None:
        cls.says = tuple(dict.fromkeys(verb.does for verb in cls.verbs.values()))

    @abstractmethod
    def scale(self, screen: Screen) -> CoordinateScale:
        """The numbers of its coordinates."""

    def parse(self, reply: str, screen: Screen) -> ScreenAction:
        """See Dialect.parse."""
        verb, given = _call_in(reply, self.verbs)
        takes, may_lack = self.verbs[verb].takes, self.verbs[verb].may_lack
        required = [key for key in takes if key not in may_lack]
        reply_values.check_keys(f"action={verb}", given, required, may_lack)
        return self.action(verb, given, screen)

    def action(self, verb: str, given: Mapping[str, Any], screen: Screen) -> ScreenAction:
        """The action of a verb with its arguments.

        Raises:
            ActionError: an argument has an invalid value.
        """
        name, does, takes = f"action={verb}", self.verbs[verb].does, self.verbs[verb].takes
        time_s = reply_values.seconds(given.get("time", self.wait_s), f"{name}: time")

        def at(key: str) -> tuple[float, float]:
            numbers = reply_values.point(given[key], f"{name}: {key}")
            return self.scale(screen).position(numbers, name)

        if does is Swipe:
            return Swipe(*at(takes[0]), *at(takes[1]))
        if does is Wait:
            return Wait(time_s)
        if does is Done:
            status = reply_values.one_of(given["status"], f"{name}: status", self.statuses)
            return Done(status=status)
        if "button" in takes:
            button = reply_values.one_of(given["button"], f"{name}: button", self.buttons)
            return Key(self.buttons[button])
        if does is Key:
            return Key(reply_values.key_name(given["text"], f"{name}: text"))
        if "coordinate" in takes:
            touch: ScreenAction = does(*at("coordinate"))
            return touch
        said: ScreenAction = does(reply_values.typed_text(given["text"], f"{name}: text"))
        return said

    def spell(self, action: ScreenAction, screen: Screen, thought: str = "") -> str:
        """See Dialect.spell."""
        verbs = {verb.does: name for name, verb in self.verbs.items()}
        if type(action) not in verbs:
            raise ActionError(f"{type(self).__name__} cannot say {action}")
        said: dict[str, Any] = {"action": verbs[type(action)]}
        at, takes = self.scale(screen).numbers, self.verbs[said["action"]].takes
        match action:
            case Tap(x, y) | LongPress(x, y) | DoubleTap(x, y):
                said["coordinate"] = at(x, y)
            case Swipe(x1, y1, x2, y2):
                said |= {takes[0]: at(x1, y1), takes[1]: at(x2, y2)}
            case Type(text) | OpenApp(text) | AnswerUser(text) | AskUser(text):
                said["text"] = text
            case Done():
                said["status"] = self.statuses[action.failed]
            case Key(name):
                said = self._key(name)
        if "time" in takes:
            said["time"] = action.seconds if isinstance(action, Wait) else LONG_PRESS_S
        return self.framed(said, thought)

    def _key(self, name: str) -> dict[str, Any]:
        button = {key: button for button, key in self.buttons.items()}.get(name)
        if button is not None:
            return {"action": "system_button", "button": button}
        if "key" in self.verbs:
            return {"action": "key", "text": name.lower()}
        raise ActionError(f"{type(self).__name__} has no key {name}")

    def framed(self, said: Mapping[str, Any], thought: str) -> str:
        """The whole reply: what comes before the call, and the call."""
        return f"{thought}\n{tool_call(said)}" if thought else tool_call(said)

    def accepted(self, accepts: Collection[type[Any]]) -> dict[str, Verb]:
        """The verbs that stand for accepted actions."""
        return {name: verb for name, verb in self.verbs.items() if verb.does in accepts}


def _call_in(reply: str, verbs: Collection[str]) -> tuple[str, dict[str, Any]]:
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
    """Return the text after `Action:` in an earlier reply; None if there is no such line."""
    found = re.search(r"^Action: *(.+)$", reply.partition("<tool_call>")[0], re.MULTILINE)
    return found[1].rstrip(" ").strip('"') if found else None


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
