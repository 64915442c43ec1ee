"""Whether replies have the form that they should have."""

import re

from agentrl.data.reward_inputs import fact
from agentrl.types import Episode, Turn

_THINK = re.compile(r"\s*<think>(.*)</think>(.*)", re.DOTALL)
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def think_answer(episode: Episode) -> list[float]:
    """1 for each reply that is `<think>...</think><answer>...</answer>` alone, else 0."""
    return [float(is_think_answer(turn.reply)) for turn in episode.turns]


def think_boxed(episode: Episode) -> list[float]:
    r"""1 for each reply that is `<think>...</think>` and then holds a `\boxed{...}`, else 0."""
    return [float(is_think_boxed(turn.reply)) for turn in episode.turns]


def action(episode: Episode) -> list[float]:
    """0 for each reply that the translator could read as an action, -1 for any other."""
    return [-1.0 if turn.parse_error is not None else 0.0 for turn in episode.turns]


def effect(episode: Episode, cost: float = 1.0) -> list[float]:
    """Minus a cost for each reply that is no action and each action that changes nothing, else 0.

    On a running clock nothing need be changed: there who acts before the next tick does no harm.

    Args:
        episode: of an environment whose info tells whether the last action has `changed` anything,
            and of its `clock`, if it has one.
        cost: of each such turn.

    Raises:
        KeyError: it does not tell what has `changed`.
    """
    return [-cost if _is_wasted(episode, turn) else 0.0 for turn in episode.turns]


def is_think_answer(reply: str) -> bool:
    """Whether a reply is one thought and one answer, in this order, with each tag once."""
    if any(reply.count(tag) != 1 for tag in _TAGS):
        return False
    found = _THINK.fullmatch(reply)
    rest = found[2].strip() if found else ""
    return rest.startswith("<answer>") and rest.endswith("</answer>")


def is_think_boxed(reply: str) -> bool:
    """Whether a reply is one thought, and words with a box behind it."""
    if reply.count("<think>") != 1 or reply.count("</think>") != 1:
        return False
    found = _THINK.fullmatch(reply)
    return found is not None and "\\boxed{" in found[2]


def _is_wasted(episode: Episode, turn: Turn) -> bool:
    if turn.parse_error is not None:
        return True
    return not fact(episode, turn.info, "changed") and turn.info.get("clock") != "running"
