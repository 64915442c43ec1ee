"""Rewards for the format of replies."""

import re

from agentrl.data.reward_inputs import fact
from agentrl.types import Episode, Turn

_THINK = re.compile(r"\s*<think>(.*)</think>(.*)", re.DOTALL)
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def think_answer(episode: Episode) -> list[float]:
    """Return 1 for each reply of the form `<think>...</think><answer>...</answer>`, else 0."""
    return [float(is_think_answer(turn.reply)) for turn in episode.turns]


def think_boxed(episode: Episode) -> list[float]:
    r"""Return 1 for each reply with `<think>...</think>` and then `\boxed{...}`, else 0."""
    return [float(is_think_boxed(turn.reply)) for turn in episode.turns]


def action(episode: Episode) -> list[float]:
    """Return -1 for each reply that could not be parsed as an action, else 0."""
    return [-1.0 if turn.parse_error is not None else 0.0 for turn in episode.turns]


def effect(episode: Episode, cost: float = 1.0) -> list[float]:
    """Return minus a cost for each invalid reply and each action without effect, else 0.

    On a running clock an action without effect costs nothing: acting before the next tick is fine.

    Args:
        episode: its environment's `info` must report whether the last action `changed` anything,
            and may have a `clock`.
        cost: the cost of each such reply and action.

    Raises:
        KeyError: `info` has no `changed`.
    """
    return [-cost * count if (count := _wasted(episode, turn)) else 0.0 for turn in episode.turns]


def is_think_answer(reply: str) -> bool:
    """Return whether a reply is a `<think>` and an `<answer>` block, with each tag once."""
    if any(reply.count(tag) != 1 for tag in _TAGS):
        return False
    found = _THINK.fullmatch(reply)
    rest = found[2].strip() if found else ""
    return rest.startswith("<answer>") and rest.endswith("</answer>")


def is_think_boxed(reply: str) -> bool:
    r"""Return whether a reply is a `<think>` block followed by text with a `\boxed{...}`."""
    if reply.count("<think>") != 1 or reply.count("</think>") != 1:
        return False
    found = _THINK.fullmatch(reply)
    return found is not None and "\\boxed{" in found[2]


def _wasted(episode: Episode, turn: Turn) -> int:
    """Count the executed actions without effect, and 1 for an invalid reply."""
    is_invalid = turn.parse_error is not None
    infos = turn.infos if turn.chunk or not is_invalid else ()
    wasted = [
        info
        for info in infos
        if not fact(episode, info, "changed") and info.get("clock") != "running"
    ]
    return is_invalid + len(wasted)
