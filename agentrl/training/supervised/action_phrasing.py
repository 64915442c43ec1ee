"""What was said, in the words that a game reads."""

import json
import re
from collections.abc import Iterator

from agentrl.actions.action_grammar import FORMS
from agentrl.actions.tags import between
from agentrl.actions.tool_calls import Calls
from agentrl.env import Translator
from agentrl.errors import ActionError, ConfigError, EnvError, boundary
from agentrl.replay.episode_encoding import to_plain
from agentrl.text import quoted
from agentrl.types import Episode, Turn

_TOOL = "tool_call"
_TAGS = ("action", "answer", _TOOL)
WAYS = {
    "tap": "tap(0.50, 0.50)",
    "swipe": "swipe(0.50, 0.70, 0.50, 0.30)",
    **{arrow: arrow for arrow in ("up", "down", "left", "right")},
}
"""How a person may answer but by words, and what that says."""
_NO_ACTION = "qzx"
_TOLD = re.compile(rf"<({'|'.join(_TAGS)})>(.*?)</\1>", re.DOTALL)


def worded(translator: Translator, said: str) -> str:
    """The reply that says what a person has said; who types need not type what is around it.

    Args:
        translator: of the game.
        said: a reply, or what stands in its tags: `up`, `tap(0.20, 0.70)`, `42`.

    Raises:
        ActionError: it is no action, however it is put.
    """
    complaints = []
    for reply in _ways(said):
        try:
            translator.to_action(reply)
            return reply
        except ActionError as error:
            complaints.append(str(error))
    # The one that got furthest, which is not about tags.
    others = (words for words in reversed(complaints) if "complete <" not in words)
    raise ActionError(next(others, complaints[0]))


def ways(translator: Translator) -> list[str]:
    """Which of `WAYS` are actions of a game; none where any words are an answer."""
    if _is_action(translator, _NO_ACTION):
        return []
    return [way for way, said in WAYS.items() if _is_action(translator, said)]


def _is_action(translator: Translator, said: str) -> bool:
    try:
        worded(translator, said)
    except Exception:  # nobody has said it: how a translator of others fails is not told
        return False
    return True


def replies(translator: Translator, episode: Episode, *, by_human: bool) -> list[str]:
    """What was said, in the words that a game reads now; what was no action stays as it was.

    Args:
        translator: of the job that learns from it.
        episode: what was played.
        by_human: whether a person said it: then it may be put in another style.

    Raises:
        ConfigError: an action is none now, or another one, or what was none is one now.
    """
    return [_reply(translator, episode, turn, by_human) for turn in episode.turns]


def _reply(translator: Translator, episode: Episode, turn: Turn, by_human: bool) -> str:
    with boundary(EnvError, f"the translator's reading of {quoted(turn.reply, 80)}"):
        try:
            reply = turn.reply
            if by_human:
                try:
                    translator.to_action(reply)
                except ActionError:
                    reply = worded(translator, unworded(reply))
            action = to_plain(translator.to_action(reply))
        except ActionError as error:
            if turn.parse_error is not None:
                return turn.reply
            raise ConfigError(
                f"warm_start.recorded: {episode.id} says {quoted(turn.reply, 80)}, which is no "
                f"action here: {error}. Play under the same env.kwargs and env.translator"
            ) from None
    if turn.parse_error is not None or action != turn.action:
        meant = "nothing" if turn.parse_error is not None else quoted(turn.action)
        raise ConfigError(
            f"warm_start.recorded: {episode.id} says {quoted(turn.reply, 80)}, which meant "
            f"{meant} and means {quoted(action)} here. Play under the same "
            "env.kwargs and env.translator"
        )
    return reply


def untagged(words: str) -> str:
    """Words about how to answer, without the tags, which a person need not type."""
    return _TOLD.sub(lambda found: _form(found[2]) if found[1] == _TOOL else found[2], words)


def unworded(reply: str) -> str:
    """What a person has said, without what was put around it for the game."""
    for tag in _TAGS:
        try:
            said = between(reply, tag).strip()
        except ActionError:
            continue
        return _call(said) if tag == _TOOL else said
    return reply


def _ways(said: str) -> Iterator[str]:
    yield said
    for tag in _TAGS:
        yield f"<{tag}>{said}</{tag}>"
    try:
        touch = Calls(FORMS.values()).read(f"<action>{said}</action>")
        yield Calls(FORMS.values(), "tool").say(touch.name, *touch.arguments)
    except ActionError:  # no gesture: the bare name of something else
        yield f"<{_TOOL}>{json.dumps({'name': said, 'arguments': {}})}</{_TOOL}>"


def _form(said: str) -> str:
    """A tool call as its form: `tap(x, y)`."""
    try:
        call = json.loads(said)
        names = ", ".join(call["arguments"])
        return f"{call['name']}({names})" if names else str(call["name"])
    except (KeyError, RecursionError, TypeError, ValueError):
        return said


def _call(said: str) -> str:
    """A tool call as a tag has it."""
    try:
        call = json.loads(said)
        given = ", ".join(
            json.dumps(value, ensure_ascii=False) for value in call["arguments"].values()
        )
        return f"{call['name']}({given})" if given else str(call["name"])
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return said
