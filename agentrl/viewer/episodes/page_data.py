"""Data for the pages: episodes, groups and comparisons as JSON values."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from agentrl.confidence_intervals import student_estimate
from agentrl.errors import AgentRLError, ConfigError, EpisodeRemoved
from agentrl.replay import RecordedEpisode, Run, Summary
from agentrl.replay.touch_positions import touch_of, touch_of_action
from agentrl.runs.episode_summary import Filter, at, void_causes
from agentrl.runs.failure_modes import SIDE_EFFECTS
from agentrl.text.formatting import pluralize
from agentrl.types import Episode, Turn, transcript_of

_MAX_TEXT = 200_000
"""Maximum number of characters of a text sent to a page."""
SORTS = ("time", "step", "seed", "reward", "turns", "tokens", "seconds")
EvaluationKey = tuple[Run, str, int]
"""A run, a label and a step."""


def row(summary: Summary) -> dict[str, Any]:
    """Return an episode's row in the episode list."""
    return {
        "id": summary.id,
        "split": summary.split,
        "label": summary.label,
        "step": summary.step,
        "time": summary.time,
        "group": summary.group,
        "member": summary.member,
        "seed": summary.seed,
        "outcome": summary.outcome.value,
        "truncated_by": summary.truncated_by,
        "void": summary.outcome.void,
        "cause": summary.cause,
        "success": summary.success,
        "error": summary.error,
        "device": summary.device,
        "turns": summary.turns,
        "tokens": summary.tokens,
        "seconds": summary.seconds,
        "reward": summary.reward,
        "metrics": dict(summary.metrics),
        "config": summary.config,
        "used_by": summary.used_by,
        "removed": summary.removed,
        "starred": summary.starred,
        "note": summary.note,
    }


def listing(
    run: Run, where: Filter, *, sort: str, down: bool, first: int, count: int
) -> dict[str, Any]:
    """Return a page of the episode list, with the possible values of filters."""
    everything = run.episodes()
    matching = where.of(everything)
    # The index is already ordered by time.
    if sort != "time" or down:
        matching.sort(key=lambda s: (getattr(s, sort), s.time, s.id), reverse=down)
    return {
        "all": len(everything),
        "found": len(matching),
        "rows": [row(summary) for summary in matching[first : first + count]],
        "outcomes": dict(Counter(s.outcome.value for s in matching)),
        "causes": dict(void_causes(matching)),
        "labels": list(dict.fromkeys(s.label for s in everything)),
    }


def episode(recorded: RecordedEpisode) -> dict[str, Any]:
    """Return a complete episode without its tokens."""
    summary, played = recorded.summary, recorded.episode
    return {
        **row(summary),
        "env_id": summary.env_id,
        # Replies of scripted players have probability 1.
        "sampled": any(any(turn.reply_logprobs) for turn in played.turns),
        "instructions": shortened(played.instructions),
        "preceding": shortened(transcript_of(played.preceding)),
        "reset_info": played.reset_info,
        "components": {name: list(values) for name, values in summary.components.items()},
        "problems": _problems(recorded),
        "played": [_turn(turn, number, summary) for number, turn in enumerate(played.turns)],
        "final": {"shown": shortened(played.final_shown), "frames": list(played.final_frames)},
    }


def _problems(recorded: RecordedEpisode) -> list[str]:
    """Describe what went wrong in an episode; see `failure_modes`."""
    modes, found = recorded.summary.failure_modes, []
    if cut := sum(turn.reply_truncated for turn in recorded.episode.turns):
        of = pluralize(len(recorded.episode.turns), "turn")
        found.append(f"reply cut off at rollout.max_new_tokens in {cut} of {of}")
    if modes.get("stuck"):
        found.append("stuck: repeats an action without effect")
    if modes.get("false_completion"):
        found.append("says that the task is done, but it is not")
    if count := modes.get(SIDE_EFFECTS):
        found.append(f"side effects: {count:g}")
    return found


def neighbors(run: Run, summary: Summary) -> dict[str, str | None]:
    """Return the episodes that ended before and after an episode, and its siblings in order."""
    everything = run.episodes()
    siblings = sorted(
        (one for one in everything if one.group == summary.group), key=lambda s: (s.member, s.id)
    )
    found: dict[str, str | None] = {}
    ways = (("previous", "next", everything), ("sibling_before", "sibling_after", siblings))
    for before, after, episodes in ways:
        ids = [one.id for one in episodes]
        at = ids.index(summary.id) if summary.id in ids else len(ids)
        found[before] = ids[at - 1] if 0 < at < len(ids) else None
        found[after] = ids[at + 1] if at + 1 < len(ids) else None
    return found


def _turn(turn: Turn, number: int, summary: Summary) -> dict[str, Any]:
    mark = touch_of(turn)
    return {
        "shown": shortened(turn.shown),
        "frames": list(turn.frames),
        "mark": None if mark is None else asdict(mark),
        "reply": shortened(turn.reply),
        "reply_truncated": turn.reply_truncated,
        "action": rounded(turn.action),
        "chunk": _chunk(turn),
        "parse_error": turn.parse_error,
        "guide": turn.guide,
        "reward": at(summary.rewards, number),
        "advantage": at(summary.advantages, number),
        "components": {name: at(values, number) for name, values in summary.components.items()},
        "env_reward": turn.env_reward,
        "state_key": turn.state_key,
        "prompt_tokens": len(turn.prompt_ids),
        "tokens": len(turn.reply_ids),
        "logprob": sum(turn.reply_logprobs),
        "versions": sorted(set(turn.reply_versions)),
        "timings": dict(turn.timings),
        "info": turn.info,
    }


def _chunk(turn: Turn) -> list[dict[str, Any]]:
    """Return the results of a turn's actions; each has the touch of the action after it."""
    after = [touch_of_action(one.action) for one in turn.chunk[1:]]
    return [
        {
            "action": rounded(one.action),
            "reward": one.reward,
            "shown": shortened(one.shown),
            "frames": list(one.frames),
            "mark": None if mark is None else asdict(mark),
        }
        for one, mark in zip_longest(turn.chunk, after)
    ]


def group(run: Run, name: str) -> dict[str, Any]:
    """Return a group's episodes, turn by turn, and which turns share a state.

    An episode that was pruned or cannot be read has no turns; `lost` has the reason.
    """
    members = sorted(run.episodes(Filter(group=name)), key=lambda s: (s.member, s.id))
    whole = episodes_of(run, members)
    return {
        "name": name,
        "members": [
            {
                **row(summary),
                "removed": isinstance(played, str),
                "lost": played if isinstance(played, str) else None,
                "played": [_brief(turn, n, summary) for n, turn in enumerate(turns_of(played))],
                "final": [] if isinstance(played, str) else list(played.final_frames),
            }
            for summary, played in zip(members, whole, strict=True)
        ],
        "meetings": shared_state_counts(whole),
    }


def episodes_of(run: Run, members: Iterable[Summary]) -> list[Episode | str]:
    """Return each member's complete episode, or the reason why it is unavailable."""
    episodes: list[Episode | str] = []
    for summary in members:
        try:
            episodes.append(run.episode(summary.id).episode)
        except EpisodeRemoved:
            episodes.append("removed by pruning; only its scores were kept")
        except ConfigError as error:
            episodes.append(without_place(error, run))
    return episodes


def without_place(error: AgentRLError, run: Run) -> str:
    """Return an error's message without the run's location on this machine."""
    path = str(run.path)
    return str(error).replace(path, run.name) if len(run.path.parts) > 1 else str(error)


def turns_of(played: Episode | str) -> tuple[Turn, ...]:
    """Return an episode's turns, or none if it is unavailable."""
    return () if isinstance(played, str) else played.turns


def _brief(turn: Turn, number: int, summary: Summary) -> dict[str, Any]:
    return {
        "frames": list(turn.frames),
        "reply": shortened(turn.reply)[:2000],
        "shown": shortened(turn.shown)[:2000],
        "unreadable": turn.parse_error is not None,
        "reward": at(summary.rewards, number),
        "advantage": at(summary.advantages, number),
        "state_key": turn.state_key,
    }


def shared_state_counts(episodes: Sequence[Episode | str]) -> list[list[int]]:
    """Count, by [episode][turn], the other episodes that reached the same state in any turn."""
    places: dict[str, set[int]] = defaultdict(set)
    for number, played in enumerate(episodes):
        for turn in turns_of(played):
            if turn.state_key is not None:
                places[turn.state_key].add(number)
    return [
        [
            0 if turn.state_key is None else len(places[turn.state_key] - {number})
            for turn in turns_of(played)
        ]
        for number, played in enumerate(episodes)
    ]


def comparison(a: EvaluationKey, b: EvaluationKey) -> dict[str, Any]:
    """Pair the episodes of two evaluations by seed.

    Returns:
        `pairs`: rows `a` and `b` by `seed`; `alone`: the seeds played in only one evaluation;
        `interval`: the 95% interval of b's mean reward minus a's, or None.
    """
    sides = [
        {s.seed: s for s in Filter(label=label, step=step).of(run.episodes()) if not s.outcome.void}
        for run, label, step in (a, b)
    ]
    first, second = sides
    shared = sorted(first.keys() & second.keys())
    gained = [second[seed].reward - first[seed].reward for seed in shared]
    mean = student_estimate(gained) if gained else None
    return {
        "interval": None if mean is None or mean.low is None else [mean.low, mean.high],
        "pairs": [{"seed": n, "a": row(first[n]), "b": row(second[n])} for n in shared],
        "alone": [len(side) - len(shared) for side in sides],
    }


def rounded(value: Any) -> Any:
    """Round numbers for display: four decimals, or four significant digits below 1."""
    if isinstance(value, float) and math.isfinite(value):
        return round(value, 4) if abs(value) >= 1 else float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value


def shortened(text: str, max_characters: int = _MAX_TEXT) -> str:
    """Shorten a text to a length that a page can show."""
    more = len(text) - max_characters
    return f"{text[:max_characters]}… ({more:,} more characters)" if more > 0 else text
