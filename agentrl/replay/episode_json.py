"""Convert an episode to JSON values and back."""

from collections.abc import Mapping
from typing import Any

from agentrl.replay.plain_json import DEEPEST, to_plain
from agentrl.runs.run_paths import FORMAT
from agentrl.types import Episode, ExecutedAction, Message, Outcome, TopLogprobs, TruncatedBy, Turn

_TOP_DIGITS = 4
"""Decimal places of alternatives' log-probabilities, which are only displayed."""


def to_json(episode: Episode) -> dict[str, Any]:
    """Convert an episode without its pixels to JSON values.

    A prompt is stored as the tokens it adds to the previous turn: whole prompts of an n-turn
    conversation would take n times the space.
    """
    preceding = [{"role": one.role, "text": one.text} for one in episode.preceding]
    turns = []
    before: tuple[int, ...] = ()
    for turn in episode.turns:
        turns.append(_turn_to_json(turn, before))
        before = turn.prompt_ids + turn.reply_ids
    return {
        "format": FORMAT,
        "id": episode.id,
        "env_id": episode.env_id,
        "seed": episode.seed,
        "group": episode.group,
        "member": episode.member,
        "reset_info": to_plain(episode.reset_info),
        "instructions": episode.instructions,
        **({"preceding": preceding} if preceding else {}),
        "turns": turns,
        "final_shown": episode.final_shown,
        "final_frames": list(episode.final_frames),
        "outcome": episode.outcome.value,
        "truncated_by": episode.truncated_by,
        "error": episode.error,
        "device": episode.device,
    }


def _turn_to_json(turn: Turn, before: tuple[int, ...]) -> dict[str, Any]:
    shared = _shared_prefix(before, turn.prompt_ids)
    top = turn.reply_top_logprobs
    recorded = {
        "reply_top_ids": [[id for id, _ in position] for position in top],
        "reply_top_logprobs": [[round(p, _TOP_DIGITS) for _, p in position] for position in top],
    }
    return {
        **(recorded if top else {}),
        "prompt_shared": shared,
        "prompt_ids": list(turn.prompt_ids[shared:]),
        "reply_ids": list(turn.reply_ids),
        "reply_logprobs": list(turn.reply_logprobs),
        "reply_versions": list(turn.reply_versions),
        "reply": turn.reply,
        "shown": turn.shown,
        "frames": list(turn.frames),
        "action": to_plain(turn.action),
        "parse_error": turn.parse_error,
        "env_reward": turn.env_reward,
        "state_key": turn.state_key,
        "info": to_plain(turn.info),
        "timings": to_plain(turn.timings),
        **({"chunk": [_executed_to_json(one) for one in turn.chunk]} if turn.chunk else {}),
        **({"reply_truncated": True} if turn.reply_truncated else {}),
        **({} if turn.guide is None else {"guide": turn.guide}),
    }


def _executed_to_json(executed: ExecutedAction) -> dict[str, Any]:
    return {
        "action": to_plain(executed.action),
        "reward": executed.reward,
        "info": to_plain(executed.info),
        "shown": executed.shown,
        "frames": list(executed.frames),
    }


def _shared_prefix(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    if b[: len(a)] == a:
        return len(a)
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def from_json(tree: Mapping[str, Any]) -> Episode:
    """Rebuild an episode without its pixels, so its turns have no `images`.

    Raises:
        KeyError, OverflowError, TypeError, ValueError: the tree is not a valid episode.
    """
    _check_types(tree, _OF_EPISODE)
    _check_depth(tree["reset_info"])
    preceding = tree.get("preceding", ())
    for message in preceding:
        _check_types(message, _OF_MESSAGE)
    turns = []
    before: tuple[int, ...] = ()
    for entry in tree["turns"]:
        turn = _turn_from_json(entry, before)
        turns.append(turn)
        before = turn.prompt_ids + turn.reply_ids
    return Episode(
        id=tree["id"],
        env_id=tree["env_id"],
        seed=tree["seed"],
        group=tree["group"],
        member=tree["member"],
        reset_info=tree["reset_info"],
        instructions=tree["instructions"],
        turns=tuple(turns),
        final_shown=tree["final_shown"],
        final_frames=tuple(tree["final_frames"]),
        outcome=Outcome(tree["outcome"]),
        truncated_by=TruncatedBy(limit) if (limit := tree["truncated_by"]) else None,
        error=tree["error"],
        device=tree["device"],
        preceding=tuple(Message(role=one["role"], text=one["text"]) for one in preceding),
    )


def _turn_from_json(entry: Mapping[str, Any], before: tuple[int, ...]) -> Turn:
    _check_types(entry, _OF_TURN)
    if not len(entry["reply_ids"]) == len(entry["reply_logprobs"]) == len(entry["reply_versions"]):
        raise ValueError("reply_ids, reply_logprobs and reply_versions differ in length")
    _check_depth((entry["action"], entry["info"]))
    top = tuple[TopLogprobs, ...]()
    # Only recorded with `rollout.top_logprobs`.
    if ids := entry.get("reply_top_ids"):
        if not len(ids) == len(entry["reply_top_logprobs"]) == len(entry["reply_ids"]):
            raise ValueError("reply_ids, reply_top_ids and reply_top_logprobs differ in length")
        top = tuple(
            tuple((int(id), float(p)) for id, p in zip(*position, strict=True))
            for position in zip(ids, entry["reply_top_logprobs"], strict=True)
        )
    return Turn(
        prompt_ids=before[: entry["prompt_shared"]] + tuple(entry["prompt_ids"]),
        reply_ids=tuple(entry["reply_ids"]),
        reply_logprobs=tuple(map(float, entry["reply_logprobs"])),
        reply_versions=tuple(entry["reply_versions"]),
        reply=entry["reply"],
        images=(),
        shown=entry["shown"],
        frames=tuple(entry["frames"]),
        action=entry["action"],
        parse_error=entry["parse_error"],
        env_reward=float(entry["env_reward"]),
        state_key=entry["state_key"],
        info=entry["info"],
        timings={name: float(seconds) for name, seconds in entry["timings"].items()},
        reply_top_logprobs=top,
        # Only recorded with `env.max_actions_per_reply` above 1.
        chunk=tuple(map(_executed_from_json, entry.get("chunk", ()))),
        reply_truncated=entry.get("reply_truncated", False),
        guide=entry.get("guide"),
    )


def _executed_from_json(entry: Mapping[str, Any]) -> ExecutedAction:
    _check_types(entry, _OF_EXECUTED)
    _check_depth((entry["action"], entry["info"]))
    return ExecutedAction(
        action=entry["action"],
        reward=float(entry["reward"]),
        info=entry["info"],
        shown=entry["shown"],
        frames=tuple(entry["frames"]),
    )


_Types = tuple[type, ...]
_TEXT: _Types = (str,)
_TEXT_OR_NONE: _Types = (str, type(None))
_NUMBER: _Types = (int, float)
_OF_EPISODE: Mapping[str, _Types] = {
    "id": _TEXT, "env_id": _TEXT, "group": _TEXT, "seed": (int,), "member": (int,),
    "instructions": _TEXT, "reset_info": (dict,), "turns": (list,), "final_shown": _TEXT,
    "preceding": (list,),
    "final_frames": (list,), "error": _TEXT_OR_NONE, "device": _TEXT_OR_NONE,
}  # fmt: skip
_OF_TURN: Mapping[str, _Types] = {
    "prompt_shared": (int,), "prompt_ids": (list,), "reply_ids": (list,),
    "reply_logprobs": (list,), "reply_versions": (list,), "reply": _TEXT, "shown": _TEXT,
    "frames": (list,), "parse_error": _TEXT_OR_NONE, "env_reward": _NUMBER,
    "state_key": _TEXT_OR_NONE, "info": (dict,), "timings": (dict,),
    "reply_top_ids": (list,), "reply_top_logprobs": (list,), "chunk": (list,),
    "reply_truncated": (bool,), "guide": _TEXT,
}  # fmt: skip
_OF_EXECUTED: Mapping[str, _Types] = {
    "reward": _NUMBER, "info": (dict,), "shown": _TEXT, "frames": (list,),
}  # fmt: skip
_OF_MESSAGE: Mapping[str, _Types] = {"role": _TEXT, "text": _TEXT}
_OF_LIST: Mapping[str, _Types] = {
    "turns": (dict,), "preceding": (dict,), "final_frames": _TEXT, "frames": _TEXT,
    "prompt_ids": (int,), "reply_ids": (int,), "reply_logprobs": _NUMBER, "reply_versions": (int,),
    "reply_top_ids": (list,), "reply_top_logprobs": (list,), "chunk": (dict,),
}  # fmt: skip


def _check_types(tree: Mapping[str, Any], types: Mapping[str, _Types]) -> None:
    """Check the types that readers rely on; reading a missing key raises KeyError later."""
    for name in types.keys() & tree.keys():
        value = tree[name]
        if not isinstance(value, types[name]):
            raise TypeError(f"{name} has the wrong type {type(value).__name__}")
        if isinstance(value, list) and not all(isinstance(v, _OF_LIST[name]) for v in value):
            raise TypeError(f"{name} has an item that is not of type {_OF_LIST[name][0].__name__}")
        # Raises here if an integer is too large for a float.
        if types[name] is _NUMBER:
            float(tree[name])
        elif _OF_LIST.get(name) is _NUMBER:
            [float(number) for number in tree[name]]


def _check_depth(value: Any) -> None:
    # Go level by level, because a malicious file may nest deeper than Python can recurse.
    level = [value]
    for _ in range(DEEPEST):
        level = [
            item
            for outer in level
            if isinstance(outer, list | tuple | dict)
            for item in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise ValueError(f"lists and mappings are nested more than {DEEPEST} deep")
