"""Several actions in one reply, an action chunk.

Each action is written as if it were the only one, one after another::

    <think>around the box</think><action>up</action><action>right</action>

    <tool_call>{"name": "up", "arguments": {}}</tool_call>
    <tool_call>{"name": "right", "arguments": {}}</tool_call>

A translator or dialect that supports this has an attribute `action_tag`, the tag around an action:
`action` or `tool_call` in these examples. A reply is split after each closing tag, and each part is
parsed as a reply with a single action.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agentrl.actions.translator import Translator
from agentrl.errors import ActionError, message_of


@dataclass(slots=True, kw_only=True, frozen=True)
class ParsedChunk:
    """The actions of a reply."""

    actions: tuple[Any, ...]
    """The actions before the first invalid one; all if none is invalid."""
    error: str | None
    """Why the next action, or the whole reply, is invalid; None if all actions are valid."""


def action_tag_of(translator: object) -> str | None:
    """Return the tag around each action; None if a reply can only contain one action."""
    tag: str | None = getattr(translator, "action_tag", None)
    return tag


def describe_chunks(tag: str, most: int) -> str:
    """Explain to the model that a reply may contain several actions."""
    return (
        f"You may give up to {most} actions in one reply, each in its own <{tag}>...</{tag}>; they "
        "are executed in order until one is invalid or the episode ends."
    )


def split_actions(reply: str, tag: str, most: int) -> list[str]:
    """Split a reply into replies with one action each.

    Text before an action stays with it; text after the last one stays with the last.

    Raises:
        ActionError: the reply contains more than `most` actions.
    """
    start, end = f"<{tag}>", f"</{tag}>"
    *parts, rest = reply.split(end)
    parts = [part + end for part in parts]
    # The beginning of another action, for example in a reply that was cut off.
    if start in rest or not parts:
        parts.append(rest)
    else:
        parts[-1] += rest
    if len(parts) > most:
        raise ActionError(
            f"{len(parts)} actions in the reply; at most {most} are allowed "
            "(env.max_actions_per_reply)"
        )
    return parts


def parse_actions(translator: Translator, reply: str, most: int) -> ParsedChunk:
    """Parse the actions of a reply up to the first invalid one.

    Args:
        translator: has an `action_tag` if `most` is more than 1.
        reply: the model's reply.
        most: maximum number of actions, `env.max_actions_per_reply`. A reply with more is invalid
            as a whole.
    """
    tag = action_tag_of(translator)
    actions: list[Any] = []
    parts = [reply]
    try:
        if most > 1 and tag is not None:
            parts = split_actions(reply, tag, most)
        for part in parts:
            actions.append(translator.to_action(part))
    except ActionError as error:
        where = f"action {len(actions) + 1} of {len(parts)}: " if len(parts) > 1 else ""
        return ParsedChunk(actions=tuple(actions), error=where + message_of(error))
    return ParsedChunk(actions=tuple(actions), error=None)


def read_actions(translator: Translator, reply: str, most: int) -> list[Any]:
    """Parse all actions of a reply.

    Raises:
        ActionError: the reply, or one of its actions, is invalid.
    """
    parsed = parse_actions(translator, reply, most)
    if parsed.error is not None:
        raise ActionError(parsed.error)
    return list(parsed.actions)


def join_actions(replies: Iterable[str]) -> str:
    """Join replies with one action each to one reply; the inverse of `split_actions`."""
    return "".join(replies)
