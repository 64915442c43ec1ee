"""Convert what a person types to replies that a translator can parse."""

import contextlib
import json
import re
from collections.abc import Iterator

from agentrl.actions.action_calls import ActionSet
from agentrl.actions.action_chunks import read_actions
from agentrl.actions.screen_action_syntax import FORMS, ActionSyntax
from agentrl.actions.translator import Translator
from agentrl.errors import ActionError
from agentrl.text.reply_tags import tag_content

_TOOL = "tool_call"
_TAGS = ("action", "answer", _TOOL)
GESTURES = {
    "tap": "tap(0.50, 0.50)",
    "swipe": "swipe(0.50, 0.70, 0.50, 0.30)",
    "long_press": "long_press(0.50, 0.50)",
    "back": "key(BACK)",
    "home": "key(HOME)",
    "wait": "wait(0.50)",
    "done": "done()",
    **{arrow: arrow for arrow in ("up", "down", "left", "right")},
}
"""Gestures and keys that a user interface can offer, each with an example reply."""
_NO_ACTION = "qzx"
_ANY_TAG = rf"</?(?:{'|'.join(_TAGS)})>"
# Not possessive, because Python 3.11.0 to 3.11.4 have a bug with lookaheads in possessive
# repetitions.
_TAGGED = re.compile(rf"<({'|'.join(_TAGS)})>((?:(?!{_ANY_TAG}).)*)</\1>", re.DOTALL)


def parse_typed(translator: Translator, text: str, most: int = 1) -> str:
    """Convert a person's input to a reply; the tags around an action may be omitted.

    Args:
        translator: translator of the environment.
        text: a complete reply, or only its action: `up`, `tap(0.20, 0.70)`, `42`.
        most: maximum number of actions in a complete reply.

    Raises:
        ActionError: the text is not an action in any known format.
    """
    errors = []
    for reply in _candidate_replies(translator, text):
        try:
            read_actions(translator, reply, most)
            return reply
        except ActionError as error:
            errors.append(str(error))
    # Raise the last error that is not about missing tags, because it is the most specific.
    specific = (message for message in reversed(errors) if "complete <" not in message)
    raise ActionError(next(specific, errors[0]))


def available_gestures(translator: Translator) -> list[str]:
    """Return the `GESTURES` that are actions of an environment; none if it accepts any text."""
    if _is_action(translator, _NO_ACTION):
        return []
    return [way for way, text in GESTURES.items() if _is_action(translator, text)]


def available_inputs(translator: Translator) -> dict[str, str]:
    """Map the gestures, keys and named actions that a person can use to their replies.

    The replies of touch gestures are examples.
    """
    names = [str(name) for name in getattr(translator, "action_names", ())]
    return {way: GESTURES[way] for way in available_gestures(translator)} | {
        name: name for name in names if name not in GESTURES
    }


def _is_action(translator: Translator, text: str) -> bool:
    try:
        parse_typed(translator, text)
    except Exception:  # only a trial, so ignore errors of a user's translator
        return False
    return True


def strip_tags(text: str) -> str:
    """Remove the tags, which a person need not type, from a description of the reply format."""
    return _TAGGED.sub(lambda match: _signature(match[2]) if match[1] == _TOOL else match[2], text)


def bare_action(reply: str) -> str:
    """Return a reply's action without the tags around it."""
    for tag in _TAGS:
        try:
            text = tag_content(reply, tag).strip()
        except ActionError:
            continue
        return _call(text) if tag == _TOOL else text
    return reply


def _candidate_replies(translator: Translator, text: str) -> Iterator[str]:
    yield text
    if (spell := getattr(translator, "spell", None)) is not None:
        with contextlib.suppress(ActionError):  # not a touch, or not in the dialect
            yield spell(ActionSyntax().parse(f"<action>{text}</action>"))
    for tag in _TAGS:
        yield f"<{tag}>{text}</{tag}>"
    try:
        touch = ActionSet(FORMS.values()).parse(f"<action>{text}</action>")
        yield ActionSet(FORMS.values(), "tool").format(touch.name, *touch.arguments)
    except ActionError:  # not a gesture, so the bare name of another tool
        yield f"<{_TOOL}>{json.dumps({'name': text, 'arguments': {}})}</{_TOOL}>"


def _signature(text: str) -> str:
    """Return a tool call's signature: `tap(x, y)`."""
    try:
        call = json.loads(text)
        names = ", ".join(call["arguments"])
        return f"{call['name']}({names})" if names else str(call["name"])
    except (KeyError, RecursionError, TypeError, ValueError):
        return text


def _call(text: str) -> str:
    """Return a tool call as written in an action tag: `tap(0.2, 0.7)`."""
    try:
        call = json.loads(text)
        values = call["arguments"].values()
        arguments = ", ".join(json.dumps(value, ensure_ascii=False) for value in values)
        return f"{call['name']}({arguments})" if arguments else str(call["name"])
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return text
