"""What the pages show, as plain JSON values."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from agentrl.errors import AgentRLError, ConfigError, EpisodeRemoved
from agentrl.replay import RecordedEpisode, Run, Summary
from agentrl.replay.episode_filters import Filter, void_causes
from agentrl.replay.episode_summary import at
from agentrl.replay.touch_marks import mark_of
from agentrl.text import printable
from agentrl.types import Episode, Turn

_LONGEST = 200_000
"""Characters of one text that are sent."""
SORTS = ("time", "step", "seed", "total", "turns", "tokens", "seconds")


Play = tuple[Run, str, int]
"""A run, a label and its step."""


def row(summary: Summary) -> dict[str, Any]:
    """An episode in a list."""
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
        "void": summary.outcome.void,
        "cause": summary.cause,
        "won": summary.won,
        "error": summary.error,
        "device": summary.device,
        "turns": summary.turns,
        "tokens": summary.tokens,
        "seconds": summary.seconds,
        "total": summary.total,
        "metrics": dict(summary.metrics),
        "config": summary.config,
        "used_by": summary.used_by,
        "removed": summary.removed,
    }


def listing(
    run: Run, wanted: Filter, *, sort: str, down: bool, first: int, count: int
) -> dict[str, Any]:
    """A page of the list, and what there is to choose from.

    Args:
        run: the recorded run.
        wanted: which episodes.
        sort: one of `SORTS`.
        down: the largest first.
        first: how many are left out in front.
        count: rows of the page.
    """
    everything = run.episodes()
    found = wanted.of(everything)
    if sort != "time" or down:
        found.sort(key=lambda s: (getattr(s, sort), s.time, s.id), reverse=down)
    return {
        "all": len(everything),
        "found": len(found),
        "rows": [row(summary) for summary in found[first : first + count]],
        "outcomes": dict(Counter(s.outcome.value for s in found)),
        "causes": dict(void_causes(found)),
        "labels": _labels(everything),
    }


def _labels(episodes: Iterable[Summary]) -> list[str]:
    """Of plays, in the order in which they began."""
    return list(dict.fromkeys(s.label for s in episodes))


def episode(recorded: RecordedEpisode) -> dict[str, Any]:
    """A whole episode but its tokens."""
    summary, played = recorded.summary, recorded.episode
    return {
        **row(summary),
        "env_id": summary.env_id,
        "instructions": _text(played.instructions),
        "reset_info": played.reset_info,
        "components": {name: list(values) for name, values in summary.components.items()},
        "played": [_turn(turn, number, summary) for number, turn in enumerate(played.turns)],
        "final": {"shown": _text(played.final_shown), "frames": list(played.final_frames)},
    }


def _turn(turn: Turn, number: int, summary: Summary) -> dict[str, Any]:
    mark = mark_of(turn)
    return {
        "shown": _text(turn.shown),
        "frames": list(turn.frames),
        "mark": None if mark is None else asdict(mark),
        "reply": _text(turn.reply),
        "action": rounded(turn.action),
        "parse_error": turn.parse_error,
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


def group(run: Run, name: str) -> dict[str, Any]:
    """The siblings of a group, turn by turn, and where they part.

    Of one that was removed or cannot be read `lost` says why it has no turns.
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
        "meetings": meetings(whole),
    }


def episodes_of(run: Run, members: Iterable[Summary]) -> list[Episode | str]:
    """Whole episodes; of each that is not to be had, why: its siblings are shown all the same."""
    found: list[Episode | str] = []
    for summary in members:
        try:
            found.append(run.episode(summary.id).episode)
        except EpisodeRemoved:
            found.append("removed by retention; its scores are kept")
        except ConfigError as error:
            found.append(without_place(error, run))
    return found


def without_place(error: AgentRLError, run: Run) -> str:
    """Its words: where the run lies on this machine is nobody's business."""
    where = str(run.path)
    return str(error).replace(where, run.name) if len(run.path.parts) > 1 else str(error)


def turns_of(played: Episode | str) -> tuple[Turn, ...]:
    """None of an episode that is not to be had."""
    return () if isinstance(played, str) else played.turns


def _brief(turn: Turn, number: int, summary: Summary) -> dict[str, Any]:
    return {
        "frames": list(turn.frames),
        "reply": _text(turn.reply)[:2000],
        "shown": _text(turn.shown)[:2000],
        "unreadable": turn.parse_error is not None,
        "reward": at(summary.rewards, number),
        "advantage": at(summary.advantages, number),
        "state_key": turn.state_key,
    }


def meetings(episodes: Sequence[Episode | str]) -> list[list[int]]:
    """[episode][turn] the number of others that were at the same state, at any turn."""
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


def comparison(one: Play, other: Play) -> dict[str, Any]:
    """The same seeds in two plays, such as two evaluations: who did better on which.

    Args:
        one: a run, a label and its step.
        other: the same.
    """
    sides = [
        {s.seed: s for s in run.episodes(Filter(label=label, step=step)) if not s.outcome.void}
        for run, label, step in (one, other)
    ]
    first, second = sides
    shared = sorted(first.keys() & second.keys())
    return {
        "pairs": [{"seed": n, "a": row(first[n]), "b": row(second[n])} for n in shared],
        "alone": [len(side) - len(shared) for side in sides],
    }


def rounded(value: Any) -> Any:
    """The same for readers: numbers with four decimals at most, below 1 with four digits."""
    if isinstance(value, float) and math.isfinite(value):
        return round(value, 4) if abs(value) >= 1 else float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value


def _text(text: str) -> str:
    """No longer than a page can show."""
    more = f"… ({len(text) - _LONGEST:,} characters more)" if len(text) > _LONGEST else ""
    return text[:_LONGEST] + more


def sendable(value: Any) -> Any:
    """The same as JSON and a page can have it: control characters spelt out, NaN as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {printable(str(key)): sendable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sendable(item) for item in value]
    return printable(value) if isinstance(value, str) else value
