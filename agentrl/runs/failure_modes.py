"""How an episode of an agent goes wrong, whatever its reward: loops, false claims, cut replies."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from agentrl.actions.screen_actions import Done
from agentrl.runs.episode_summary import is_success
from agentrl.types import IMAGE, Episode, Turn

REPEATS = 3
"""Length of a loop: so many equal actions in a row, each on the same screen."""
SIDE_EFFECTS = "side_effects"
"""Key of `info` under which an environment counts or lists what else the agent has changed."""


def failure_modes(episode: Episode) -> dict[str, float]:
    """Return what went wrong in a valid episode, by the name of its metric.

    `truncated_replies` is the fraction of replies cut off at `rollout.max_new_tokens`, `stuck` 1 if
    an unsuccessful episode repeats an action without effect. `false_completion` is in the result
    only if the agent says that the task is done and the environment reports success: 1 if the agent
    is wrong. `side_effects` is in the result only if the environment reports them.
    """
    turns = episode.turns
    info: Mapping[str, Any] = turns[-1].info if turns else {}
    success = reported_success(info)
    found = {
        "truncated_replies": sum(turn.reply_truncated for turn in turns) / max(1, len(turns)),
        "stuck": float(success is not True and longest_loop(turns) >= REPEATS),
    }
    if success is not None and any(map(_claims_success, turns)):
        found["false_completion"] = float(not success)
    if (count := _side_effects(info)) is not None:
        found[SIDE_EFFECTS] = count
    return found


def reported_success(info: Mapping[str, Any]) -> bool | None:
    """Return whether the environment reports success in its metrics, or else in `info` itself."""
    metrics = info.get("metrics")
    success = is_success(metrics) if isinstance(metrics, Mapping) else None
    if success is None and isinstance(info.get("success"), bool):
        return bool(info["success"])
    return success


def longest_loop(turns: Sequence[Turn]) -> int:
    """Return the largest number of successive turns with the same action on the same screen.

    Replies without an action are left out, since they are counted on their own.
    """
    longest = length = 0
    for before, turn in pairwise((None, *turns)):
        assert turn is not None
        is_repeated = before is not None and _is_same(before, turn)
        length = 0 if turn.action is None else length + 1 if is_repeated else 1
        longest = max(longest, length)
    return longest


def _is_same(before: Turn, turn: Turn) -> bool:
    """Return whether two successive turns take the same action on the same screen."""
    if before.action is None or turn.action is None:
        return False
    # A private screen is not shown.
    if not turn.shown or turn.shown != before.shown:
        return False
    # Compare actions first, because comparing screens takes longer.
    if not _equal(before.action, turn.action):
        return False
    if before.frames and turn.frames:
        # A frame's id is the hash of its pixels.
        return before.frames == turn.frames
    # The images of a turn's own message are the last; recorded episodes have none.
    count = turn.shown.count(IMAGE)
    if min(len(before.images), len(turn.images)) < count:
        return False
    first, second = (one.images[len(one.images) - count :] for one in (before, turn))
    return all(map(np.array_equal, first, second))


def _equal(one: Any, other: Any) -> bool:
    """Return whether two actions are equal, which may be or contain arrays."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(np.array_equal(one, other))


def _claims_success(turn: Turn) -> bool:
    """Return whether a turn says that the task is done: a `Done` that does not report failure."""
    return any(_is_claim(action) for action in turn.actions)


def _is_claim(action: Any) -> bool:
    # A recorded action is a mapping.
    if isinstance(action, Mapping) and action.get("type") == Done.__name__.lower():
        action = Done(status=action.get("status"))
    return isinstance(action, Done) and not action.failed


def _side_effects(info: Mapping[str, Any]) -> float | None:
    effects = info.get(SIDE_EFFECTS)
    if isinstance(effects, list | tuple | dict):
        return float(len(effects))
    return float(effects) if isinstance(effects, int | float) else None
